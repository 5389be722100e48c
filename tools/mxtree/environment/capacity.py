# SPDX-License-Identifier: Apache-2.0
"""How many test environments this machine runs side by side."""

from __future__ import annotations

import os
from pathlib import Path

#: An environment tests in up to four processes, and some of those start ranks of their own.
CORES_EACH = 4
BYTES_EACH = 8 << 30

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def environments_at_once() -> int:
    """Return for how many environments cores and memory suffice; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min((cores or 1) // CORES_EACH, available_bytes() // BYTES_EACH))


def available_bytes() -> int:
    """Return the memory that processes can still take: the system's, within a container's limit."""
    found = [_system_bytes()]
    limit, used = (_cgroup_number(name) for name in ("memory.max", "memory.current"))
    if limit is not None and used is not None:
        found.append(max(0, limit - used))
    return min(found)


def _system_bytes() -> int:
    if _MEMINFO.exists():
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cgroup_number(name: str) -> int | None:
    """A number of this process's control group, as a container shows it; None for "max"."""
    path = _CGROUP / name
    text = path.read_text(encoding="ascii").strip() if path.exists() else "max"
    return int(text) if text.isdecimal() else None
