# SPDX-License-Identifier: Apache-2.0
"""Measurements around training steps: off by default, without a synchronisation of their own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from .errors import TrainingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from mxflux.recipe.schema import Probes

FOLDER = "profile"


class TimedBatches:
    """The same batches; ``seconds`` adds up the time in ``next()``.

    Raises TrainingError where they end: a step must not end half way.
    """

    def __init__(self, batches: Iterator[Mapping[str, Any]]) -> None:
        self.batches = batches
        self.seconds = 0.0

    def __iter__(self) -> TimedBatches:
        return self

    def __next__(self) -> Mapping[str, Any]:
        start = time.perf_counter()
        try:
            return next(self.batches)
        except StopIteration:
            raise TrainingError(
                "the training data ended before the last step: a training loader must start anew"
            ) from None
        finally:
            self.seconds += time.perf_counter() - start

    def take_seconds(self) -> float:
        """The time since the last call."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


class TrainProfile:
    """torch.profiler over steps profile_step_start to profile_step_end - 1 of one rank."""

    def __init__(self, probes: Probes, run_dir: Path, rank: int) -> None:
        self.probes = probes
        self.on = probes.train_profile and rank == probes.profile_rank
        self.path = run_dir / FOLDER / f"train-rank-{rank}.json"
        self._profiler: Any = None

    def before_step(self, step: int) -> None:
        """Start with the first step that is traced; a resumed run may be past some of them."""
        first, end = self.probes.profile_step_start, self.probes.profile_step_end
        if self.on and self._profiler is None and first <= step < end:
            self._profiler = torch.profiler.profile()
            self._profiler.start()

    def after_step(self, step: int) -> None:
        """Write the trace after the last one."""
        if self._profiler is not None and step + 1 >= self.probes.profile_step_end:
            self.close()

    def close(self) -> None:
        """Write what is traced, if anything."""
        if self._profiler is None:
            return
        self._profiler.stop()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._profiler.export_chrome_trace(str(self.path))
        self._profiler = None
