# SPDX-License-Identifier: Apache-2.0
"""How many environments at once: the lesser of what cores and memory hold, at least one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mxtree.environment import capacity

GIB = 1 << 30


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """64 cores, 100 GiB available, no control group."""
    (tmp_path / "meminfo").write_text("MemTotal: 1 kB\nMemAvailable:  104857600 kB\n")
    monkeypatch.setattr(capacity, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(capacity, "_CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    return tmp_path


def test_memory_or_cores_decide(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert capacity.available_bytes() == 100 * GIB
    assert capacity.environments_at_once() == 12
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(9)), raising=False)
    assert capacity.environments_at_once() == 2
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert capacity.environments_at_once() == 1


def test_a_container_has_less(machine: Path) -> None:
    (machine / "memory.max").write_text("max\n")
    (machine / "memory.current").write_text(f"{2 * GIB}\n")
    assert capacity.available_bytes() == 100 * GIB
    (machine / "memory.max").write_text(f"{34 * GIB}\n")
    assert capacity.available_bytes() == 32 * GIB
    assert capacity.environments_at_once() == 4
    (machine / "memory.max").write_text(f"{GIB}\n")
    assert capacity.environments_at_once() == 1


def test_without_meminfo_the_whole_memory_counts(machine: Path) -> None:
    (machine / "meminfo").unlink()
    assert capacity.available_bytes() > GIB
