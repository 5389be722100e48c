# SPDX-License-Identifier: Apache-2.0
"""Environments that mxtree makes: whole ones are kept, half-made ones never count."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mxtree.environment.venv import prepare
from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from pathlib import Path


def test_one_that_is_whole_is_kept_until_the_requirements_change(
    tmp_path: Path, no_requirements: Path
) -> None:
    folder = tmp_path / "env"
    prepare(folder)
    (folder / "leftover").mkdir()
    prepare(folder)
    assert (folder / "leftover").exists()
    no_requirements.write_text("# nothing, said differently\n")
    prepare(folder)
    assert not (folder / "leftover").exists()


@pytest.mark.usefixtures("no_requirements")
def test_nothing_of_the_working_directory_runs(
    tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep)
    prepare(tmp_path / "env")
    assert not trace.exists(), trace.read_text()


@pytest.mark.usefixtures("no_requirements")
def test_one_that_is_half_made_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "env"
    folder.mkdir()
    (folder / ".mxtree-started").touch()
    (folder / "bin").mkdir()
    (folder / "bin" / "leftover").touch()
    assert "pip" in prepare(folder).distributions
    assert not (folder / "bin" / "leftover").exists()


@pytest.mark.usefixtures("no_requirements")
def test_a_folder_of_the_users_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("")
    with pytest.raises(FatalError, match="is not an environment that mxtree made") as caught:
        prepare(tmp_path / "home")
    assert "--python" in str(caught.value.hint)
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["thesis.tex"]


def test_packages_that_cannot_be_had_leave_no_environment_that_counts(
    tmp_path: Path, no_requirements: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_requirements.write_text("six\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    folder = tmp_path / "env"
    with pytest.raises(FatalError, match="pip could not install") as caught:
        prepare(folder)
    assert caught.value.code == ExitCode.COULD_NOT_CHECK
    assert not (folder / ".mxtree-ready").exists()
    monkeypatch.setenv("MXTREE_OFFLINE", "1")
    with pytest.raises(FatalError, match="MXTREE_OFFLINE is set"):
        prepare(folder)
