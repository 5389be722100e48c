# SPDX-License-Identifier: Apache-2.0
"""Traced graphs and kept handles, in processes that compile for gfx950 and launch nothing."""

from __future__ import annotations

from pathlib import Path

import fusions_support as support
import pytest

CASES = str(Path(__file__).with_name("compile_only_cases.py"))


@pytest.fixture(scope="module")
def lines() -> dict[str, list[str]]:
    """What each case printed; one process for all, since starting torch is most of the time."""
    done = support.run_python(CASES)
    assert done.returncode == 0, done.stderr[-2000:]
    parts = done.stdout.split("== ")[1:]
    return {part.splitlines()[0]: part.splitlines()[1:] for part in parts}


def test_traceable_ops_show_their_kernels_and_clone_nothing_strided(
    lines: dict[str, list[str]],
) -> None:
    assert [line for line in lines["graph"] if "kernels" in line] == ["kernels 3", "kernels 6"]
    assert not [line for line in lines["graph"] if line.endswith("strided")]


def test_no_traced_kernel_writes_one_tensor_through_two_arguments(
    lines: dict[str, list[str]],
) -> None:
    """Functionalization would clone it twice and keep either copy."""
    assert lines["graph"].count("written once") == 9
    assert "written twice" not in lines["graph"]


def test_kept_handles_and_their_guards(lines: dict[str, list[str]]) -> None:
    assert lines["handles"] == [
        "kept True 1",
        "again 2 True",
        "misaligned 1",
        "small storage keeps True",
        "big storage keeps False",
    ]


def test_cold_launches_from_several_threads(lines: dict[str, list[str]]) -> None:
    assert lines["threads"] == ["threads 4"]


def test_public_calls_launch_one_kernel_forward_and_two_backward(
    lines: dict[str, list[str]],
) -> None:
    assert lines["eager"] == ["eager launches 9"]
