# SPDX-License-Identifier: Apache-2.0
"""Replacing a folder in one step, also when killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from mxtree.tree import swap

if TYPE_CHECKING:
    from pathlib import Path


def _fill(folder: Path, word: str) -> Path:
    folder.mkdir(parents=True)
    for name in ("one", "two"):
        (folder / name).write_text(word)
    return folder


def _words(folder: Path) -> set[str]:
    return {(folder / name).read_text() for name in ("one", "two")}


@pytest.mark.parametrize("atomic", [True, False], ids=["renameat2", "two renames"])
def test_replace_exchanges_the_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, atomic: bool
) -> None:
    if not atomic:
        monkeypatch.setattr(swap, "_exchange", lambda first, second: False)
    target, stage = _fill(tmp_path / "target", "old"), _fill(tmp_path / "stage", "new")
    swap.replace(stage, target)
    assert (_words(target), _words(stage)) == ({"new"}, {"old"})


def test_replace_works_without_an_old_folder(tmp_path: Path) -> None:
    swap.replace(_fill(tmp_path / "stage", "new"), tmp_path / "target")
    assert _words(tmp_path / "target") == {"new"}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="renameat2 is Linux only")
def test_linux_has_the_atomic_exchange(tmp_path: Path) -> None:
    assert swap._exchange(_fill(tmp_path / "a", "a"), _fill(tmp_path / "b", "b"))


def test_recover_brings_back_the_old_folder(tmp_path: Path) -> None:
    """The state after a kill between the two renames of a system without renameat2."""
    _fill(tmp_path / ".target.old", "old")
    swap.recover(tmp_path / "target")
    assert _words(tmp_path / "target") == {"old"}


def test_recover_clears_the_old_folder_when_the_new_one_is_in_place(tmp_path: Path) -> None:
    _fill(tmp_path / ".target.old", "old")
    _fill(tmp_path / "target", "new")
    swap.recover(tmp_path / "target")
    assert _words(tmp_path / "target") == {"new"}
    assert not (tmp_path / ".target.old").exists()


def test_staging_is_gone_after_an_error_and_clears_what_a_kill_left(tmp_path: Path) -> None:
    _fill(tmp_path / ".target.stage", "half")
    with pytest.raises(KeyboardInterrupt), swap.staging(tmp_path / "target") as stage:
        assert list(stage.iterdir()) == []
        raise KeyboardInterrupt
    assert not stage.exists()


_REPLACE_FOREVER = """
import sys
from pathlib import Path
from mxtree.tree import swap

target = Path(sys.argv[1])
for turn in range(10**9):
    with swap.staging(target) as stage:
        for name in ("one", "two"):
            (stage / name).write_text(str(turn))
        swap.replace(stage, target)
    if turn == 0:
        print("started", flush=True)
"""


def test_kill_at_any_moment_leaves_a_whole_folder(tmp_path: Path) -> None:
    target = tmp_path / "target"
    for round_number in range(12):
        process = subprocess.Popen(
            [sys.executable, "-c", _REPLACE_FOREVER, str(target)],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        time.sleep(0.003 * round_number)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        swap.recover(target)
        assert len(_words(target)) == 1
