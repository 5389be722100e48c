# SPDX-License-Identifier: Apache-2.0
"""Looking into an environment from outside."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mxtree.environment.interpreter import inspect
from mxtree.errors import FatalError


def test_this_environment_as_it_sees_itself() -> None:
    found = inspect(Path(sys.executable), ["pytest", "no.such.module", "mxtree"])
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    assert found.distributions["pytest"].version == pytest.__version__
    assert found.modules["pytest"] == pytest.__file__
    assert found.modules["no.such.module"] is None


def test_locating_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "explosive").mkdir()
    (tmp_path / "explosive" / "__init__.py").write_text("raise SystemExit(1)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = inspect(Path(sys.executable), ["explosive"])
    assert found.modules["explosive"] == str(tmp_path / "explosive" / "__init__.py")
    assert not list(tmp_path.rglob("*.pyc"))


def test_the_first_of_two_equal_distributions_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "pytest-0.0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: PyTest\nVersion: 0.0.1\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert inspect(Path(sys.executable)).distributions["pytest"].version == "0.0.1"


def test_the_whole_python_path_counts_under_safe_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "found_here.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    found = inspect(Path(sys.executable), ["found_here"])
    assert found.modules["found_here"] == str(tmp_path / "found_here.py")


@pytest.mark.parametrize("path", ["/nonexistent/python", "/usr"])
def test_no_program(path: str) -> None:
    with pytest.raises(FatalError, match=f"{path} is not a program") as caught:
        inspect(Path(path))
    assert "bin/python" in str(caught.value.hint)


def test_a_program_that_is_no_python() -> None:
    with pytest.raises(FatalError, match="did not answer as a Python interpreter"):
        inspect(Path("/bin/true"))


def test_an_old_python_is_refused(tmp_path: Path) -> None:
    old = tmp_path / "python"
    facts = '{"version": [3, 9, 1], "distributions": []}'
    old.write_text(f"#!/bin/sh\necho '{facts}'\n")
    old.chmod(0o755)
    with pytest.raises(FatalError, match=r"is Python 3\.9\.1; the tree needs 3\.10 or newer"):
        inspect(old)
