# SPDX-License-Identifier: Apache-2.0
"""The control plugin turns documented failures, and only those, into passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.control import compile_mark

HOOKS = (Path(__file__).parents[1] / "conftest.py").read_text(encoding="utf-8")
CASES = """
import pytest

def test_unmarked():
    pass

@pytest.mark.control("KeyError: 'old'")
def test_as_documented():
    {}["old"]

@pytest.mark.control("DID NOT RAISE")
def test_did_not_raise():
    with pytest.raises(ValueError):
        pass

@pytest.mark.control("KeyError")
def test_passes():
    pass

@pytest.mark.control("KeyError")
def test_wrong_kind():
    raise ValueError("not this one")

@pytest.mark.control("KeyError")
def test_skips():
    pytest.skip("KeyError")

@pytest.mark.control("KeyError")
@pytest.mark.xfail(strict=False)
def test_expected_to_fail_otherwise():
    raise ValueError("not this one")

@pytest.fixture
def broken():
    raise KeyError("in the fixture")

@pytest.mark.control("KeyError")
def test_broken_setup(broken):
    pass

@pytest.mark.control("KeyError")
@pytest.mark.parametrize("key", ["a", pytest.param("b", marks=pytest.mark.control("LookupError"))])
def test_nearest_mark(key):
    {}[key]
"""


def run(folder: Path, *options: str) -> dict[str, str]:
    """Outcome per test of a run of CASES under the plugin, "output" and exit "status"."""
    (folder / "support").symlink_to(Path(__file__).parent)
    (folder / "conftest.py").write_text(HOOKS, encoding="utf-8")
    (folder / "test_cases.py").write_text(CASES, encoding="utf-8")
    # The plugin alone: the trees under test have no part in this.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MXTREE_TREE")}
    command = [sys.executable, "-m", "pytest", "-v", "--strict-markers", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-c", os.devnull, "--rootdir", str(folder), *options, "test_cases.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    outcomes = {"output": done.stdout + done.stderr, "status": str(done.returncode)}
    for line in done.stdout.splitlines():
        name, _, rest = line.partition(" ")
        if "::" in name and rest:
            outcomes.setdefault(name.partition("::")[2], rest.split()[0])
    return outcomes


def test_plain_run_ignores_the_marks(tmp_path: Path) -> None:
    """Without --control a marked test is an ordinary one."""
    outcomes = run(tmp_path)
    assert outcomes["test_unmarked"] == "PASSED"
    assert outcomes["test_passes"] == "PASSED"
    assert outcomes["test_as_documented"] == "FAILED"
    assert outcomes["test_skips"] == "SKIPPED"


def test_control_run(tmp_path: Path) -> None:
    """With --control the verdicts turn around, and only the documented failure passes."""
    outcomes = run(tmp_path, "--control")
    output, status = outcomes.pop("output"), outcomes.pop("status")
    assert status == "1"
    assert outcomes == {
        "test_as_documented": "PASSED",
        "test_did_not_raise": "PASSED",
        "test_passes": "FAILED",
        "test_wrong_kind": "FAILED",
        "test_skips": "FAILED",
        "test_expected_to_fail_otherwise": "FAILED",
        "test_broken_setup": "ERROR",
        "test_nearest_mark[a]": "PASSED",
        "test_nearest_mark[b]": "FAILED",
    }, output
    assert "1 deselected" in output
    assert "passes without the patch" in output
    assert "ValueError: not this one" in output
    assert "fails in setup, but not as documented" in output
    assert "skipped in call, so it proves nothing" in output


def test_a_selection_without_controls_is_no_failure(tmp_path: Path) -> None:
    """`mxtree test -e ENV -- -k one_test`: that one passed, and no control has its name."""
    for name, options, status in (
        ("controls", ("--control", "-k", "unmarked"), "0"),
        ("tests", ("-k", "no_such_test"), "5"),
    ):
        (tmp_path / name).mkdir()
        assert run(tmp_path / name, *options)["status"] == status


@pytest.mark.parametrize(
    "mark",
    [
        pytest.mark.control(),
        pytest.mark.control(""),
        pytest.mark.control(".*"),
        pytest.mark.control("("),
        pytest.mark.control("a", "b"),
        pytest.mark.control("a", reason="b"),
        pytest.mark.control(3),
    ],
)
def test_a_mark_must_say_something(mark: pytest.MarkDecorator) -> None:
    """A mark without a regex, or with one that any failure satisfies, is a usage error."""
    with pytest.raises(pytest.UsageError, match=r"here: control\(pattern\) takes one regex"):
        compile_mark(mark.mark, "here")
