# SPDX-License-Identifier: Apache-2.0
"""Which checkpoints of a run stay, and the `latest` link of its directory."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from .locate import CHECKPOINTS, LATEST, iteration_folders
from .publish import sync_folder
from .tracker import TRACKER, checkpoint_folder, read_tracker

if TYPE_CHECKING:
    from pathlib import Path


def publish_latest(run_dir: Path, iteration: int) -> Path:
    """Point ``run_dir``/latest at the checkpoint of ``iteration``, atomically; returns the link.

    The link is relative, so that a run directory can be moved. Called after the tracker names
    the iteration: whatever the link points at is complete.
    """
    link = run_dir / LATEST
    scratch = run_dir / f".{LATEST}.{os.getpid()}"
    scratch.unlink(missing_ok=True)
    scratch.symlink_to(checkpoint_folder(run_dir / CHECKPOINTS, iteration).relative_to(run_dir))
    scratch.replace(link)
    sync_folder(run_dir)
    return link


def latest_link(run_dir: Path) -> Path | None:
    """What ``run_dir``/latest points at, None when there is no such link."""
    link = run_dir / LATEST
    return link.resolve() if link.is_symlink() else None


def prune(root: Path, keep: int, protected: Path | None = None) -> list[Path]:
    """Remove all but the ``keep`` newest checkpoints; returns what was removed.

    What the tracker names, what is newer, and ``protected`` always stay. A checkpoint is renamed
    before it is deleted: a job that dies in between leaves no half of one.
    Raises ValueError when ``keep`` is not positive.
    """
    if keep < 1:
        raise ValueError(f"keep={keep}: at least the latest checkpoint has to stay")
    if not (root / TRACKER).is_file():
        return []
    latest = checkpoint_folder(root, read_tracker(root))
    candidates = [folder for folder in iteration_folders(root) if _older(folder, latest)]
    # The latest is one of the `keep`.
    surplus = candidates[: max(0, len(candidates) - (keep - 1))]
    removed = [folder for folder in surplus if protected is None or folder != protected.resolve()]
    for folder in removed:
        aside = folder.with_name(f".{folder.name}.removed")
        folder.rename(aside)
        shutil.rmtree(aside)
    return removed


def discard_leftovers(root: Path) -> list[Path]:
    """Remove what saves and removals left behind that died; no save may be under way."""
    found = [*root.glob(".iter_*.partial"), *root.glob(".iter_*.removed")]
    for folder in found:
        shutil.rmtree(folder)
    return found


def _older(folder: Path, latest: Path) -> bool:
    return int(folder.name.removeprefix("iter_")) < int(latest.name.removeprefix("iter_"))
