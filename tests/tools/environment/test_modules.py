# SPDX-License-Identifier: Apache-2.0
"""Modules of the overlay in the environment of a tree: real environments, no torch in them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from mxtree.environment import modules
from mxtree.environment.install import InstallRequest, install
from mxtree.environment.packages import Policy
from mxtree.errors import ExitCode, FatalError
from mxtree.tree.manifest import load_manifest

MODULE = """\
import os, sys
print("PYTHONPATH" in os.environ, os.environ["ADDED"], sys.argv[1:])
sys.exit(7)
"""


@pytest.fixture
def python(tree: Path, bare_python: Path) -> Path:
    """Return an interpreter with the tree in it."""
    install(InstallRequest(tree, python=bare_python, dependencies=Policy.IGNORE))
    return bare_python


def test_the_interpreter_beside_the_tree(tmp_path: Path) -> None:
    tree = tmp_path / "default"
    with pytest.raises(FatalError, match="is not installed") as caught:
        modules.find_python(tree)
    assert "./mxtree build && ./mxtree install" in str(caught.value.hint)
    there = tmp_path / "default.venv" / "bin" / "python"
    there.parent.mkdir(parents=True)
    there.symlink_to(sys.executable)
    assert modules.find_python(tree) == there


def test_an_interpreter_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").symlink_to(sys.executable)
    assert modules.find_python(tmp_path / "no tree", Path("python")) == tmp_path / "python"
    with pytest.raises(FatalError, match="missing does not exist"):
        modules.find_python(tmp_path, Path("missing"))


def test_what_is_installed(python: Path, tree: Path) -> None:
    digest = load_manifest(tree).digest
    found = modules.installed(python)
    assert found.digest == digest == modules.installed_tree(python)
    assert found.versions["mxflux"] == f"0.1.0+mxtree.{digest[:12]}"
    assert found.versions["megatron-core"].startswith("0.18.2+mxtree.")
    assert "torch" not in found.versions


def test_an_environment_without_a_tree(bare_python: Path) -> None:
    with pytest.raises(FatalError, match="has no tree of mxtree installed") as caught:
        modules.installed(bare_python)
    assert caught.value.code == ExitCode.USAGE
    assert caught.value.hint == f"./mxtree install --python {bare_python}"
    assert "mxflux" in caught.value.details[0]


def test_a_module_runs_with_its_arguments_and_status(
    python: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    module = python.parents[1] / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    (module / "a_module.py").write_text(MODULE)
    (tmp_path / "a_module.py").write_text("raise SystemExit('the copy here ran')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    status = modules.run_module(python, "a_module", ["a", "b c"], environment={"ADDED": "yes"})
    assert (status, capfd.readouterr().out) == (7, "False yes ['a', 'b c']\n")


def test_python_3_10_runs_nothing_of_the_working_directory(
    tree: Path, python_3_10: Path, trace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    install(InstallRequest(tree, python=python_3_10, dependencies=Policy.IGNORE))
    site = python_3_10.parents[1] / "lib" / "python3.10" / "site-packages"
    (site / "a_module.py").write_text(MODULE)
    shutil.copy("json.py", "a_module.py")
    status = modules.run_module(python_3_10, "a_module", ["a"], environment={"ADDED": "yes"})
    assert (status, capfd.readouterr().out) == (7, "False yes ['a']\n")
    assert not trace.exists(), trace.read_text()


def test_no_module_runs_without_a_tree(bare_python: Path) -> None:
    with pytest.raises(FatalError, match="has no tree"):
        modules.run_module(bare_python, "platform", [])
