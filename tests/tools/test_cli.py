# SPDX-License-Identifier: Apache-2.0
"""The command line as a user meets it: output, exit codes, interruptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from mxtree.errors import ExitCode
from mxtree.tree.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from mxtree.project import Project

    Run = Callable[..., subprocess.CompletedProcess[str]]

BUILD = ("build", "--source", "git")


def test_build_verify_status_export_agree(mxtree: Run, project: Project) -> None:
    built = mxtree(*BUILD)
    assert built.returncode == ExitCode.OK, built.stderr
    assert "0001 Teach megatron-lm to count" in built.stdout
    assert mxtree("verify").stdout.strip().endswith("is what its manifest says")
    status = json.loads(mxtree("status", "--json").stdout)
    assert (status["state"], status["patched"]) == ("current", True)
    assert mxtree("export", "--check").returncode == ExitCode.OK
    again = json.loads(mxtree(*BUILD, "--json").stdout)
    assert (again["reused"], again["digest"]) == (True, status["digest"])


def test_verify_exits_1_and_names_the_file(mxtree: Run, project: Project) -> None:
    mxtree(*BUILD)
    (project.default_tree / "megatron-lm" / "code.py").write_text("changed\n")
    result = mxtree("verify")
    assert result.returncode == ExitCode.CHECK_FAILED
    assert "megatron-lm/code.py" in result.stdout
    listed = json.loads(mxtree("verify", "--json").stdout)
    assert [item["path"] for item in listed["differences"]] == ["megatron-lm/code.py"]
    status = mxtree("status").stdout
    assert "changed" in status
    assert "next: mxtree" in status


def test_status_without_a_tree_names_the_next_command(mxtree: Run) -> None:
    result = mxtree("status")
    assert result.returncode == ExitCode.OK
    assert "absent" in result.stdout
    assert "next: mxtree build" in result.stdout


def test_status_of_an_outdated_tree_says_why(mxtree: Run, project: Project) -> None:
    mxtree(*BUILD)
    (project.overlay / "mxflux" / "more.py").write_text("x = 1\n")
    assert "overlay/ has changed" in mxtree("status").stdout


def test_status_shows_a_series_that_cannot_be_read(mxtree: Run, project: Project) -> None:
    (project.series_dir("megatron-lm", "1.0") / "stray.patch").write_text("x")
    status = mxtree("status").stdout
    assert "series cannot be read" in status
    assert "next: mxtree lint" in status


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("build", "--megatron-lm", "1.1"), ExitCode.USAGE, ("1.1", "1.0", "upstreams.toml")),
        (("build", "--source", "nowhere"), ExitCode.USAGE, ("'nowhere'", "index, git")),
        (("build", "--source", "megatron=git"), ExitCode.USAGE, ("megatron-lm",)),
        # One folder can hold one upstream: it must not be taken for both, not even unpatched.
        (
            ("build", "--no-patches", "--source", "dir:/tmp"),
            ExitCode.USAGE,
            ("is given for", "megatron-lm", "transformer-engine", "--source"),
        ),
        (("build", "--sauce", "git"), ExitCode.USAGE, ("--sauce",)),
        (("bild",), ExitCode.USAGE, ("bild",)),
        (("verify", "/nonexistent"), ExitCode.USAGE, ("/nonexistent", "is not a tree", "build")),
        (("export", "--dry-run"), ExitCode.USAGE, ("is not a tree",)),
        (("rebase", "megatron-lm"), ExitCode.USAGE, ("--onto", "--continue")),
        (("rebase", "megatron-lm", "--continue"), ExitCode.USAGE, ("no rebase", "--onto")),
        (
            ("rebase", "megatron-lm", "--onto", "1.0", "--abort"),
            ExitCode.USAGE,
            ("do not go together",),
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_wrong_command_is_one_screen(
    mxtree: Run, args: tuple[str, ...], code: ExitCode, words: tuple[str, ...]
) -> None:
    result = mxtree(*args)
    assert result.returncode == code, result.stderr
    assert [word for word in words if word not in result.stderr] == []
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) < 25


def _start(project: Project, *args: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "mxtree", *args],
        cwd=project.root,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT], ids=["kill", "interrupt"])
def test_a_build_that_is_stopped_leaves_the_old_or_the_new_tree(
    mxtree: Run, project: Project, kind: signal.Signals
) -> None:
    mxtree(*BUILD)
    started = time.perf_counter()
    (project.overlay / "mxflux" / "a.py").write_text("a = 0\n")
    mxtree(*BUILD)
    duration = time.perf_counter() - started
    for moment in range(1, 7):
        (project.overlay / "mxflux" / "a.py").write_text(f"a = {moment}\n")
        process = _start(project, *BUILD)
        time.sleep(duration * moment / 7)
        os.killpg(process.pid, kind)
        _, errors = process.communicate(timeout=60)
        assert verify(project.default_tree) == []
        # Before main() runs, while Python itself starts, an interrupt is Python's to report.
        assert b"mxtree/tree/" not in errors
        assert process.returncode in {0, -kind, ExitCode.INTERRUPTED}
    assert mxtree(*BUILD).returncode == ExitCode.OK
    assert sorted(path.name for path in project.default_tree.parent.iterdir()) == [
        ".default.lock",
        "default",
    ]


def test_two_builds_at_once_both_succeed(mxtree: Run, project: Project) -> None:
    both = [_start(project, *BUILD) for _ in range(2)]
    errors = [process.communicate(timeout=120)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    assert verify(project.default_tree) == []
