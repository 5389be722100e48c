# SPDX-License-Identifier: Apache-2.0
"""The commands install, wheel, test and doctor as they are typed."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pytest

from mxtree.__main__ import main
from mxtree.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path


class Mxtree(Protocol):
    """Runs a command line in this process."""

    def __call__(self, *arguments: str | Path) -> Result: ...


@dataclass(frozen=True)
class Result:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def mxtree(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Mxtree:
    """Return a function that runs ``mxtree ARGUMENTS`` as the program does."""

    def run(*arguments: str | Path) -> Result:
        monkeypatch.setattr(sys, "argv", ["mxtree", *map(str, arguments)])
        capfd.readouterr()
        returncode = main()
        return Result(returncode, *capfd.readouterr())

    return run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--python", "x", "--env", "y"], "--python names an environment and --env"),
        (["--with-deps"], "--with-deps and --no-deps are about an existing environment"),
        (["--python", "x", "--with-deps", "--no-deps"], "contradict each other"),
        (["--without", "torch"], "--without torch: a tree has no such distribution"),
        (["--replace", "te"], "--replace te: a tree has no such distribution"),
    ],
)
def test_install_refuses_what_makes_no_sense(
    mxtree: Mxtree, tree: Path, arguments: list[str], message: str
) -> None:
    result = mxtree("install", tree, *arguments)
    assert result.returncode == ExitCode.USAGE
    assert message in result.stderr
    assert result.stdout == ""


def test_install_reports(mxtree: Mxtree, tree: Path, bare_python: Path) -> None:
    arguments = ["install", tree, "--python", bare_python, "--no-deps"]
    found = json.loads(mxtree(*arguments, "--json").stdout)
    assert found["python"] == str(bare_python)
    assert set(found["versions"]) == {"megatron-core", "transformer-engine", "mxflux"}
    assert found["compiled_parts"] == []
    lines = mxtree(*arguments, "--without", "transformer-engine").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["python", "megatron-core", "mxflux", "compiled"]


def test_wheel_reports(mxtree: Mxtree, tree: Path, tmp_path: Path) -> None:
    result = mxtree("wheel", tree, "--out", tmp_path / "dist", "--json")
    found = json.loads(result.stdout)
    assert sorted(wheel["path"] for wheel in found["wheels"]) == sorted(
        str(path) for path in (tmp_path / "dist").iterdir()
    )
    assert "helpers_cpp" in found["left_out"][0]
    text = mxtree("wheel", tree, "--out", tmp_path / "dist").stdout
    assert "next: pip install" in text


def test_wheel_of_a_missing_tree(mxtree: Mxtree, tmp_path: Path) -> None:
    result = mxtree("wheel", tmp_path / "nothing", "--out", tmp_path / "dist")
    assert result.returncode == ExitCode.USAGE
    assert "nothing is not a tree" in result.stderr


def test_test_passes_arguments_on_and_closes_with_the_counts(
    mxtree: Mxtree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXTREE_PROJECT", str(tmp_path))
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches" / "upstreams.toml").touch()
    (tmp_path / "tox.ini").write_text(
        "[tox]\nno_package = true\nlabels =\n    few = one\n"
        "[testenv:one]\ncommands = python -c 'import sys; print(sys.argv[1:])' {posargs}\n"
    )
    result = mxtree("test", "--label", "few", "--", "-k", "a b", "--json")
    assert result.returncode == 0, result.stderr
    assert "['-k', 'a b', '--json']" in result.stdout
    assert result.stdout.splitlines()[-1] == "1 passed, 0 failed"
    found = json.loads(mxtree("test", "-e", "one", "--json").stdout)
    assert [row["name"] for row in found["environments"]] == ["one"]
    assert "TOX ARGS" in mxtree("test", "--help").stdout


def test_doctor(
    mxtree: Mxtree, bare_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MXTREE_OFFLINE", "1")
    monkeypatch.setenv("MXTREE_CACHE", str(tmp_path / "cache"))
    result = mxtree("doctor", "--python", bare_python, "--json")
    assert (result.returncode, json.loads(result.stdout)["ok"]) == (ExitCode.OK, True)
    (tmp_path / "file").touch()
    monkeypatch.setenv("MXTREE_CACHE", str(tmp_path / "file"))
    result = mxtree("doctor", "--python", bare_python)
    assert result.returncode == ExitCode.CHECK_FAILED
    assert result.stdout.splitlines()[-1] == "to be put right: cache"
