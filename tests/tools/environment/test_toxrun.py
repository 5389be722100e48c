# SPDX-License-Identifier: Apache-2.0
"""`mxtree test`, with a real tox and small environments."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mxtree.environment import results, summary, toxrun
from mxtree.environment.results import Counts, EnvironmentResult
from mxtree.errors import ExitCode, FatalError

TOX_INI = """\
[tox]
env_list = good, bad, broken
no_package = true
[testenv]
set_env = PYTHONPATH = {site}
[testenv:good]
commands =
    python -m pytest -p no:cacheprovider suite.py --junitxml={reports}{/}good.xml {posargs}
    python -m pytest -p no:cacheprovider suite.py --junitxml={reports}{/}good.control.xml -k one
[testenv:bad]
ignore_errors = true
commands =
    python -c "print('first')"
    python -c "raise SystemExit(3)"
[testenv:broken]
commands_pre = python -c "raise SystemExit(3)"
commands = python -c ""
"""

SUITE = """\
import pytest
def test_one(): pass
def test_two(): pass
@pytest.mark.skip(reason="for the count")
def test_three(): pass
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a tox.ini whose environments borrow this one's packages."""
    monkeypatch.setenv("VIRTUALENV_NO_SEED", "1")
    site = next(path for path in sys.path if path.endswith("site-packages"))
    text = TOX_INI.replace("{site}", site).replace("{reports}", "{work_dir}{/}reports")
    (tmp_path / "tox.ini").write_text(text)
    (tmp_path / "suite.py").write_text(SUITE)
    return tmp_path


def test_every_environment_is_counted(project: Path) -> None:
    run = toxrun.run_tox(project, ["-q"], quiet_stdout=True)
    found = {item.name: item for item in results.read(run.results, run.reports)}
    assert list(found) == ["good", "bad", "broken"]
    assert found["good"].success
    assert (found["good"].tests, found["good"].controls) == (Counts(2, 0, 1), Counts(1, 0, 0))
    assert not found["bad"].success
    assert found["bad"].tests == Counts(1, 1), "commands are counted where there is no pytest"
    assert not found["broken"].success
    table = summary.lines(list(found.values()))
    assert table[-1] == "4 passed, 2 failed, 1 skipped", "a broken set-up is a failure"
    assert toxrun.exit_code(run.status, ran=True) == ExitCode.CHECK_FAILED


def test_no_module_of_the_checkout_is_taken_for_one_of_tox(project: Path) -> None:
    for name in ("tox", "runpy", "argparse"):
        (project / f"{name}.py").write_text("raise SystemExit('the copy here ran')")
    run = toxrun.run_tox(project, ["-q", "-e", "broken"], quiet_stdout=True)
    (found,) = results.read(run.results, run.reports)
    assert (found.name, found.success) == ("broken", False)


def test_arguments_reach_tox_and_pytest(project: Path) -> None:
    arguments = ["-q", "-e", "good", "--workdir", "elsewhere", "--", "-k", "two"]
    run = toxrun.run_tox(project, arguments, quiet_stdout=True)
    assert run.results == project / "elsewhere" / "results.json"
    (found,) = results.read(run.results, run.reports)
    assert run.status == 0
    assert found.tests == Counts(1, 0, 0)

    # What that run left behind must not be taken for results of the next one.
    again = ["-q", "-e", "nonsense", "--workdir", "elsewhere"]
    run = toxrun.run_tox(project, again, quiet_stdout=True)
    assert results.read(run.results, run.reports) == []
    assert toxrun.exit_code(run.status, ran=False) == ExitCode.USAGE


def test_environments_at_once(project: Path) -> None:
    run = toxrun.run_tox(project, ["-p", "2", "-e", "good,bad"], quiet_stdout=True)
    found = {item.name: item.success for item in results.read(run.results, run.reports)}
    assert found == {"good": True, "bad": False}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["run-parallel", "--parallel", "3"]),
        (["--label", "release", "-r"], ["run-parallel", "--parallel", "3", "-m", "release", "-r"]),
        (["-e", "a,b"], ["run-parallel", "--parallel", "3", "-e", "a,b"]),
        (["-e", "a", "--", "-k", "x"], ["run", "-e", "a", "--", "-k", "x"]),
        (["-ea"], ["run", "-ea"]),
        (["-p", "1"], ["run-parallel", "-p", "1"]),
        (["run", "-m", "release"], ["run", "-m", "release"]),
    ],
)
def test_several_environments_run_side_by_side_where_there_is_room(
    arguments: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toxrun, "environments_at_once", lambda: 3)
    words = toxrun._with_results(arguments, Path("r.json"))
    assert words == [expected[0], "--result-json", "r.json", *expected[1:]]
    monkeypatch.setattr(toxrun, "environments_at_once", lambda: 1)
    assert toxrun._with_results([], Path("r.json")) == ["run", "--result-json", "r.json"]


def test_other_commands_of_tox_pass_through(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = toxrun.run_tox(project, ["list", "--no-desc"])
    assert run.status == 0
    assert "good" in capfd.readouterr().out


def test_a_missing_python_is_named_before_tox_starts(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("HOME", "/nonexistent")
    with pytest.raises(FatalError, match=r"no Python 3\.99 was found"):
        toxrun.run_tox(project, ["-e", "py399-mcore0.18.2-te2.18.0"])


def test_a_folder_without_tox_ini(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match=r"has no tox\.ini"):
        toxrun.run_tox(tmp_path, [])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["3.12"]),
        (["-r"], ["3.12"]),
        (["-e", "lint,tools"], []),
        (["--label", "release"], []),
        (["-e", "py311-mcore0.17.1-te2.17.1,py312-mcore0.18.2-te2.18.0"], ["3.11", "3.12"]),
        (["-e", "tools", "--", "-k", "py310"], []),
        (["list"], []),
    ],
)
def test_wanted_pythons(arguments: list[str], expected: list[str]) -> None:
    assert toxrun.wanted_pythons(arguments) == expected


def test_status_of_arguments_that_tox_does_not_know(project: Path) -> None:
    run = toxrun.run_tox(project, ["--no-such-option"], quiet_stdout=True)
    assert toxrun.exit_code(run.status, ran=False) == ExitCode.USAGE


def test_the_table() -> None:
    rows = [
        EnvironmentResult("lint", True, Counts(4), Counts(), 12.34, 20.0),
        EnvironmentResult("py312-x", False, Counts(10, 1, 2), Counts(6, 1), 70.0, 100.0),
    ]
    assert summary.lines(rows) == [
        "environment  result  passed  failed  skipped   controls  setup s   test s",
        "lint         ok           4       0        0          -     12.3     20.0",
        "py312-x      FAILED      10       1        2        6/7     70.0    100.0",
        "",
        "20 passed, 2 failed, 2 skipped",
    ]
    assert summary.lines([]) == []
