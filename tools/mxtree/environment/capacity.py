# SPDX-License-Identifier: Apache-2.0
"""How many test environments this machine, or the container around us, runs side by side."""

from __future__ import annotations

import math
import os
from pathlib import Path

#: An environment tests in up to four processes, and some of those start ranks of their own.
CORES_EACH = 4
BYTES_EACH = 8 << 30

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")

# Files of a control group: limit, use, statistics, and in those what can be dropped at once.
_MEMORY = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", "total_inactive_file"),
)


def environments_at_once() -> int:
    """Return for how many environments cores and memory suffice; at least 1."""
    return max(1, min(int(available_cores() // CORES_EACH), available_bytes() // BYTES_EACH))


def available_cores() -> float:
    """Return the cores that we may run on, within a container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min([float(cores or 1), *(_quota(group) for group in _groups())])


def available_bytes() -> int:
    """Return the memory that processes can still take, within a container's limit."""
    return int(min([_system_bytes(), *(_free(group) for group in _groups())]))


def _system_bytes() -> int:
    for line in _text(_PROC / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _groups() -> list[Path]:
    """This process's control groups with all that they are in, version 1 and 2.

    A container sees its own as the root, and the path of the host, which is not there, beside it.
    """
    found = {_CGROUP, _CGROUP / "memory", _CGROUP / "cpu"}
    for line in _text(_PROC / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            group = _CGROUP / controller / path.lstrip("/")
            root = _CGROUP / controller
            found |= {group, *(p for p in group.parents if p.is_relative_to(root))}
    return sorted(found)


def _free(group: Path) -> float:
    for limit, use, statistics, droppable in _MEMORY:
        most, used = _text(group / limit).strip(), _text(group / use).strip()
        if most.isdecimal() and used.isdecimal():
            rows = (line.split() for line in _text(group / statistics).splitlines())
            cache = next((int(row[1]) for row in rows if row[:1] == [droppable]), 0)
            return max(0, int(most) - int(used) + cache)
    return math.inf


def _quota(group: Path) -> float:
    words = _text(group / "cpu.max").split()
    words = words or [_text(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    limited = len(words) == 2 and all(word.isdecimal() for word in words)
    return int(words[0]) / int(words[1]) if limited else math.inf


def _text(path: Path) -> str:
    """What a file of the kernel says; nothing where there is none."""
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
