# SPDX-License-Identifier: Apache-2.0
"""The upstream mark leaves tests out where they do not belong, says so, and accepts no nonsense."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = """
import pytest

upstream = pytest.mark.upstream

def test_unmarked():
    pass

@upstream("transformer-engine>=2.16", reason="roles have names")
def test_newer():
    pass

@upstream("transformer-engine<2.16,>=2.14", reason="roles have no names")
def test_older():
    pass

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=upstream("megatron-lm<0.18", reason="x"))])
def test_parameter(n):
    pass

@upstream("transformer-engine>=2.16", reason="no defect before", control_only=True)
@pytest.mark.control("KeyError")
def test_control():
    {}["old"]
"""


def run(
    folder: Path, *options: str, cases: str = CASES, te: str = "2.14.1"
) -> subprocess.CompletedProcess[str]:
    """A run of the cases on a path that says TE is `te` and Megatron 0.18.2."""
    for package, version in {"transformer_engine": te, "megatron_core": "0.18.2"}.items():
        info = folder / f"{package}-{version}.dist-info"
        info.mkdir()
        name = package.replace("_", "-")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "support").symlink_to(Path(__file__).parent)
    conftest = (Path(__file__).parents[1] / "conftest.py").read_text(encoding="utf-8")
    (folder / "conftest.py").write_text(conftest, encoding="utf-8")
    (folder / "test_cases.py").write_text(cases, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k != "MXTREE_TREE"}
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--strict-markers"]
    plain = ["-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder)]
    return subprocess.run(
        [*command, *plain, *options, "test_cases.py"],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_an_older_release_leaves_out_what_is_for_newer_ones(tmp_path: Path) -> None:
    done = run(tmp_path)
    kept = {line.split("::")[1] for line in done.stdout.splitlines() if line.startswith("PASSED")}
    assert kept == {"test_unmarked", "test_older", "test_parameter[1]"}, done.stdout
    for line in (
        "left out, 1 tests for transformer-engine>=2.16, this is 2.14.1: roles have names",
        "left out, 1 tests for megatron-lm<0.18, this is 0.18.2: x",
    ):
        assert line in done.stdout
    assert "this is 2.14.1: no defect before" not in done.stdout
    assert "FAILED test_cases.py::test_control" in done.stdout, "a plain run has it"


@pytest.mark.parametrize(("te", "runs"), [("2.14.1", False), ("2.20.2", True)])
def test_control_only_counts_in_a_control_run(tmp_path: Path, te: str, runs: bool) -> None:
    done = run(tmp_path, "--control", te=te)
    assert ("PASSED test_cases.py::test_control" in done.stdout) is runs, done.stdout
    left_out = f"left out, 1 tests for transformer-engine>=2.16, this is {te}: no defect before"
    assert (left_out in done.stdout) is not runs


@pytest.mark.parametrize(
    ("mark", "named"),
    [
        ('"transformer-engine>=2.16"', "takes one of"),
        ('"transformer-engine is new", reason="x"', "takes one of"),
        ('"torch>=2", reason="x"', "not 'torch'"),
        ('"transformer-engine>=2", reason="x", only=True', "takes one of"),
    ],
)
def test_a_mark_without_a_meaning_stops_the_run(tmp_path: Path, mark: str, named: str) -> None:
    cases = f"import pytest\n@pytest.mark.upstream({mark})\ndef test_it(): pass\n"
    done = run(tmp_path, cases=cases)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert named in done.stderr + done.stdout
