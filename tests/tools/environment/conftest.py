# SPDX-License-Identifier: Apache-2.0
"""Trees to install and environments to install them into."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from environment_trees import make_tree

from mxtree.environment import pythons, requirements, venv

#: What the tool starts or asks for in an environment, beside the standard library.
_WANTED = ("mxflux", "pip", "sitecustomize", "torch", "tox", "transformer_engine", "virtualenv")


@pytest.fixture(autouse=True)
def _no_user_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MXTREE_PYTHON", "MXTREE_OFFLINE", "MXTREE_PROJECT", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tree from the index that no test changes; its path has spaces and an umlaut."""
    return make_tree(tmp_path_factory.mktemp("a träe with spaces") / "default")


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """Return the interpreter of a new environment that has nothing, not even pip."""
    folder = tmp_path / "bare environment"
    command = [sys.executable, "-m", "virtualenv", "--quiet", "--no-periodic-update", "--no-pip"]
    subprocess.run([*command, "--no-setuptools", folder], check=True, cwd=tmp_path)
    return folder / "bin" / "python"


@pytest.fixture
def python_3_10(tmp_path: Path) -> Path:
    """Return the interpreter of a new environment that is too old for PYTHONSAFEPATH and -P."""
    found = pythons.find_some(["3.10"])
    if not found:
        pytest.skip("there is no Python 3.10 on this machine")
    folder = tmp_path / "environment of 3.10"
    command = [sys.executable, "-m", "virtualenv", "--quiet", "--no-periodic-update", "--no-pip"]
    subprocess.run(
        [*command, "--no-setuptools", "-p", found["3.10"], folder], check=True, cwd=tmp_path
    )
    return folder / "bin" / "python"


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work where every module is a stranger's; return the file in which each leaves its name."""
    path, here = tmp_path / "trace", tmp_path / "a stranger's folder"
    here.mkdir()
    for name in (*sys.stdlib_module_names, *_WANTED):
        (here / f"{name}.py").write_text(f"open({str(path)!r}, 'a').write(__name__ + ' ')\n")
    monkeypatch.chdir(here)
    return path


@pytest.fixture
def pip_python(tmp_path: Path) -> Path:
    """Return the interpreter of a new environment that has pip alone."""
    folder = tmp_path / "environment with pip"
    command = [sys.executable, "-m", "virtualenv", "--quiet", "--no-periodic-update"]
    subprocess.run([*command, folder], check=True, cwd=tmp_path)
    return folder / "bin" / "python"


@pytest.fixture
def no_requirements(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let new environments of this Python version need nothing; return the list."""
    listed = tmp_path / "requirements.txt"
    listed.write_text("# nothing\n")
    monkeypatch.setattr(requirements, "FILE", listed)
    monkeypatch.setattr(venv, "DEFAULT_VERSION", f"{sys.version_info[0]}.{sys.version_info[1]}")
    monkeypatch.setattr(venv, "find_python", lambda: sys.executable)
    return listed
