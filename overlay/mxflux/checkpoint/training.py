# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a training run: model, optimizer, schedule, random numbers, data, progress.

    path = save_training_checkpoint(run_dir, parts, progress, keep=3)
    loaded = load_training_checkpoint(run_dir, parts)
    start = loaded.record.progress.iteration

Everything is in one torch_dist checkpoint, ``run_dir``/checkpoints/iter_NNNNNNN, with a manifest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .background import AsyncSaves
from .distributed import begin_save, finish_save
from .locate import CHECKPOINTS
from .parts import Loaded, ReshardableLoader, Resumable, TrainingParts
from .restore import load_training_checkpoint
from .retention import discard_leftovers, latest_link, prune, publish_latest
from .together import everywhere, on_rank_zero
from .tracker import checkpoint_folder
from .training_record import Layout, Progress, TrainingRecord
from .training_state import rank_objects, record_of, training_state, unwrapped

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "AsyncSaves",
    "Layout",
    "Loaded",
    "Progress",
    "ReshardableLoader",
    "Resumable",
    "TrainingParts",
    "TrainingRecord",
    "load_training_checkpoint",
    "publish_latest",
    "save_training_checkpoint",
]


def save_training_checkpoint(
    run_dir: Path,
    parts: TrainingParts,
    progress: Progress,
    *,
    optimizer_format: str = "dp_reshardable",
    keep: int | None = None,
    saves: AsyncSaves | None = None,
) -> Path:
    """Save a run as ``run_dir``/checkpoints/iter_NNNNNNN, called on every rank; returns that path.

    When it is complete the tracker, then ``run_dir``/latest name it, and all but the ``keep``
    newest checkpoints go (None: all stay). Whenever the job dies, or the disk is full, tracker
    and link name a complete checkpoint: the new one or the one before.
    With ``saves`` the state is only copied here; call ``saves.poll()`` after every step, and
    ``saves.close()`` at the end.
    ``optimizer_format``: "dp_reshardable" (no communication, the same tensor-parallel size and
    gradient buckets later) or "fully_reshardable" (gathers; any layout later).
    Raises on every rank: FileExistsError when the iteration is there, OSError or CheckpointError
    when it cannot be written, ValueError for an unknown format or a pipeline.
    """
    root = run_dir / CHECKPOINTS
    record = everywhere(lambda: record_of(parts, progress, optimizer_format))
    state = {**training_state(parts, record.optimizer_format), **rank_objects(parts)}
    architecture = unwrapped(parts.model).config.architecture
    iteration = progress.iteration
    if saves is None or not saves.pending:
        on_rank_zero(lambda: discard_leftovers(root))

    def settle() -> None:
        on_rank_zero(lambda: _settle(run_dir, iteration, keep))

    if saves is None:
        save = begin_save(root, iteration, state, architecture, record)
        save.write(state)
        finish_save(save)
        settle()
    else:
        saves.start(root, iteration, state, architecture, record, settle=settle)
    return checkpoint_folder(root, iteration)


def _settle(run_dir: Path, iteration: int, keep: int | None) -> None:
    publish_latest(run_dir, iteration)
    if keep is not None:
        prune(run_dir / CHECKPOINTS, keep, latest_link(run_dir))
