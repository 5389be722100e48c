# SPDX-License-Identifier: Apache-2.0
"""Which checkpoint a path means: a run directory, its `latest`, a folder of checkpoints, or one."""

from __future__ import annotations

import re
from pathlib import Path

from .errors import CheckpointError
from .tracker import TRACKER, checkpoint_folder, read_tracker

CHECKPOINTS = "checkpoints"
LATEST = "latest"
_ITERATION = re.compile(r"iter_\d{7,}")


def locate(path: Path | str) -> Path:
    """The checkpoint that ``path`` means.

    A folder with a tracker (or a run directory with such a folder) means what the tracker names;
    a symlink is followed; anything else is returned as it is, for its reader to judge.
    Raises CheckpointError when the path does not exist, when a tracker is missing where only it
    could tell, or when it names what is not there.
    """
    path = Path(path)
    if not path.exists():
        raise CheckpointError(_absent(path))
    path = path.resolve()
    for root in (path, path / CHECKPOINTS):
        if (root / TRACKER).is_file():
            return checkpoint_folder(root, read_tracker(root))
        if root.is_dir() and (found := iteration_folders(root)):
            names = ", ".join(folder.name for folder in found)
            raise CheckpointError(f"{root}: there is no {TRACKER}; name one of: {names}")
    return path


def iteration_folders(root: Path) -> list[Path]:
    """The checkpoints of a folder by iteration, complete or not named by the tracker."""
    found = [p for p in root.iterdir() if p.is_dir() and _ITERATION.fullmatch(p.name)]
    return sorted(found, key=lambda folder: int(folder.name.removeprefix("iter_")))


def _absent(path: Path) -> str:
    if path.is_symlink():
        return f"{path} points to {path.readlink()}, which does not exist"
    return f"{path} does not exist"
