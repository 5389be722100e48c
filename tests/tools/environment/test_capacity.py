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
    write(tmp_path / "meminfo", "MemTotal: 1 kB\nMemAvailable:  104857600 kB\n")
    monkeypatch.setattr(capacity, "_PROC", tmp_path)
    monkeypatch.setattr(capacity, "_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    return tmp_path


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="ascii")


def test_memory_or_cores_decide(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert capacity.available_bytes() == 100 * GIB
    assert capacity.environments_at_once() == 12
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(9)), raising=False)
    assert capacity.environments_at_once() == 2
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert capacity.environments_at_once() == 1


def test_a_containers_limits_count(machine: Path) -> None:
    group = machine / "cgroup"
    write(group / "memory.max", "max")
    write(group / "memory.current", 2 * GIB)
    write(group / "cpu.max", "max 100000")
    assert capacity.available_bytes() == 100 * GIB
    write(group / "memory.max", 34 * GIB)
    assert capacity.environments_at_once() == 4
    write(group / "cpu.max", "900000 100000")  # docker --cpus=9
    assert capacity.environments_at_once() == 2


def test_the_page_cache_of_a_container_is_no_used_memory(machine: Path) -> None:
    """Installing a few torches leaves tens of gigabytes of it."""
    group = machine / "cgroup"
    write(group / "memory.max", 64 * GIB)
    write(group / "memory.current", 60 * GIB)
    write(group / "memory.stat", f"anon {2 * GIB}\ninactive_file {52 * GIB}")
    assert capacity.available_bytes() == 56 * GIB


def test_limits_of_version_1_and_of_groups_around_ours(machine: Path) -> None:
    write(machine / "self" / "cgroup", "5:cpu,memory:/slurm/job_1\n1:name=systemd:/x\n0::/other")
    memory = machine / "cgroup" / "memory" / "slurm"
    write(memory / "memory.limit_in_bytes", 40 * GIB)
    write(memory / "memory.usage_in_bytes", 8 * GIB)
    write(memory / "job_1" / "memory.limit_in_bytes", 1 << 62)  # none of its own
    write(memory / "job_1" / "memory.usage_in_bytes", 8 * GIB)
    assert capacity.available_bytes() == 32 * GIB
    write(machine / "cgroup" / "cpu" / "slurm" / "job_1" / "cpu.cfs_quota_us", 1_200_000)
    write(machine / "cgroup" / "cpu" / "slurm" / "job_1" / "cpu.cfs_period_us", 100_000)
    assert capacity.available_cores() == 12
    write(machine / "cgroup" / "other" / "cpu.max", "200000 100000")
    assert capacity.available_cores() == 2


def test_without_meminfo_the_whole_memory_counts(machine: Path) -> None:
    (machine / "meminfo").unlink()
    assert capacity.available_bytes() > GIB
