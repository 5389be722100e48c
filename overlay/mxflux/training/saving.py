# SPDX-License-Identifier: Apache-2.0
"""When a run saves and resumes, and what goes into its checkpoints."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mxflux.checkpoint.locate import CHECKPOINTS
from mxflux.checkpoint.parts import Resumable, TrainingParts
from mxflux.checkpoint.tracker import TRACKER
from mxflux.checkpoint.training import (
    AsyncSaves,
    Progress,
    load_training_checkpoint,
    save_training_checkpoint,
)

from .helpers import own_checkpoint_helper
from .mx_precision import start_stochastic_rounding
from .random_state import StepCounter

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.managers import SyncManager

    from mxflux.recipe.schema import Recipe

    from .build import Built
    from .forward_step import FluxForwardStep

logger = logging.getLogger(__name__)


@dataclass
class Position:
    """How far a run has come."""

    step: int = 0
    samples: int = 0


class Checkpoints:
    """Saves and resumes one run; every method is called on every rank.

    ``published`` hears of each checkpoint that is complete: step, path, seconds since it was begun.
    """

    def __init__(
        self,
        recipe: Recipe,
        run_dir: Path,
        recipe_sha256: str,
        *,
        published: Callable[[int, Path, float], None],
    ) -> None:
        self.settings = recipe.checkpoint
        self.recipe = recipe
        self.run_dir = run_dir
        self.recipe_sha256 = recipe_sha256
        self.published = published
        self.saved_step: int | None = None
        """The last step of this run that a checkpoint was asked for."""
        self._background = AsyncSaves() if self.settings.async_save else None
        self._begun: dict[int, float] = {}
        """When the save of a step began that no one heard of yet."""
        self._helper: SyncManager | None = None

    def source(self) -> tuple[Path, bool] | None:
        """(what to start from, whether only weights are taken), None for a fresh run."""
        if self.settings.auto_resume and (self.run_dir / CHECKPOINTS / TRACKER).exists():
            return self.run_dir, False
        if self.settings.load is not None:
            return Path(self.settings.load), self.settings.finetune
        return None

    def resume(
        self,
        built: Built,
        forward_step: FluxForwardStep,
        loader: Resumable | None,
        num_microbatches: int,
        data_parallel_rank: int,
    ) -> Position:
        """Continue from :meth:`source`; a fresh run's position when there is none.

        Raises CheckpointError on every rank, with every reason, when it cannot be resumed.
        """
        found = self.source()
        if found is None:
            return Position()
        path, weights_only = found
        loaded = load_training_checkpoint(
            path,
            self._parts(built, forward_step, loader),
            recipe_sha256=self.recipe_sha256,
            reseeds_every_step=self._reseeds_every_step(),
            model_only=weights_only,
            verify_files=self.settings.verify_on_load,
        )
        for note in loaded.notes:
            logger.warning("%s", note)
        if weights_only or loaded.record is None:
            built.optimizer.reload_model_params()
            return Position()
        progress = loaded.record.progress
        # The saved counter belongs to the saved number of ranks and micro-batches.
        forward_step.counter.training = StepCounter.resume(
            progress.iteration, num_microbatches
        ).training
        forward_step.started = "random" in loaded.restored
        start_stochastic_rounding(
            built.model,
            self.recipe.schedule.seed,
            data_parallel_rank,
            forward_step.counter.training,
        )
        if path == self.run_dir:
            self.saved_step = progress.iteration
        return Position(progress.iteration, progress.consumed_samples)

    def is_due(self, step: int) -> bool:
        """Whether the interval asks for a checkpoint after ``step``."""
        interval = self.settings.save_interval
        return interval is not None and step % interval == 0

    def save(
        self,
        position: Position,
        built: Built,
        forward_step: FluxForwardStep,
        loader: Resumable | None,
    ) -> None:
        """Save ``position`` unless it is saved already."""
        if position.step == self.saved_step:
            return
        start = time.perf_counter()
        if self._helper is None:
            self._helper = own_checkpoint_helper()
        progress = Progress(position.step, position.samples, self.recipe_sha256)
        path = save_training_checkpoint(
            self.run_dir,
            self._parts(built, forward_step, loader, saving=True),
            progress,
            optimizer_format=self.settings.optimizer_format,
            keep=self.settings.keep,
            saves=self._background,
        )
        self.saved_step = position.step
        if self._background is None:
            self.published(position.step, path, time.perf_counter() - start)
        else:
            self._begun[position.step] = start

    def poll(self) -> None:
        """Publish what was written in the background."""
        if self._background is not None:
            self._report(self._background.poll())

    def close(self) -> None:
        """Wait for what is still being written, and publish it."""
        if self._background is not None:
            self._report(self._background.close())
        if self._helper is not None:
            self._helper.shutdown()

    def _report(self, paths: list[Path]) -> None:
        for path in paths:
            step = int(path.name.removeprefix("iter_"))
            self.published(step, path, time.perf_counter() - self._begun.pop(step))

    def _parts(
        self,
        built: Built,
        forward_step: FluxForwardStep,
        loader: Resumable | None,
        *,
        saving: bool = False,
    ) -> TrainingParts:
        without_optimizer = saving and self.settings.no_save_optim
        return TrainingParts(
            model=built.ddp,
            optimizer=None if without_optimizer else built.optimizer,
            scheduler=built.scheduler,
            loader=loader,
            counter=forward_step.counter,
        )

    def _reseeds_every_step(self) -> bool:
        """Whether all that a step draws starts anew with it: the CPU's draws do so on the CPU."""
        if not self.recipe.schedule.per_step_rng_reseed:
            return False
        on_cpu = self.recipe.device == "cpu"
        return on_cpu or self.recipe.model.timestep_sampling_strategy == "direct_uniform"
