# SPDX-License-Identifier: Apache-2.0
"""Checkpoint folders of a run and the tracker file that names the latest, in Megatron's form."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .errors import CheckpointError
from .publish import sync_folder

if TYPE_CHECKING:
    from pathlib import Path

TRACKER = "latest_checkpointed_iteration.txt"


def checkpoint_folder(root: Path, iteration: int) -> Path:
    """Folder of an iteration: iter_0000100."""
    if iteration < 0:
        raise ValueError(f"iteration={iteration} must not be negative")
    return root / f"iter_{iteration:07d}"


def final_iteration(folder: Path) -> int:
    """Iteration of a folder that :func:`checkpoint_folder` named."""
    return int(folder.name.removeprefix("iter_"))


def write_tracker(root: Path, iteration: int) -> None:
    """Name ``iteration`` as the latest, atomically and durably."""
    scratch = root / f".{TRACKER}.{os.getpid()}"
    try:
        with scratch.open("w", encoding="ascii") as file:
            file.write(str(iteration))
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(root / TRACKER)
    finally:
        scratch.unlink(missing_ok=True)  # still there only when the disk was full
    sync_folder(root)


def read_tracker(root: Path) -> int:
    """The latest iteration.

    Raises CheckpointError naming the file when it is missing or malformed.
    """
    path = root / TRACKER
    try:
        text = path.read_text(encoding="ascii").strip()
        iteration = int(text)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: there is no checkpoint to resume from") from None
    except ValueError:
        raise CheckpointError(f"{path}: {text!r} is no iteration") from None
    if not checkpoint_folder(root, iteration).is_dir():
        raise CheckpointError(
            f"{path} names iteration {iteration}, but "
            f"{checkpoint_folder(root, iteration)} is missing"
        )
    return iteration
