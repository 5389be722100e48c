# SPDX-License-Identifier: Apache-2.0
"""The evaluations of a run: which, when, and what the MLPerf log hears of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from megatron.core import parallel_state

from mxflux.data import build_loaders
from mxflux.evaluation.budget import EvalBudget, plan_evaluation
from mxflux.evaluation.evaluator import EvaluationResult, Evaluator
from mxflux.evaluation.probes import ProbeSettings
from mxflux.evaluation.warmup import warm_up_validation

from .probes import FOLDER
from .warmup import batch_shape

if TYPE_CHECKING:
    from pathlib import Path

    from mxflux.data import DataSettings
    from mxflux.recipe.schema import Recipe

    from .setup import Ready


def evaluation_budget(recipe: Recipe) -> EvalBudget | None:
    """What each evaluation reads; None when the recipe has none. Raises EvaluationError."""
    evaluation = recipe.evaluation
    if evaluation.interval is None and not evaluation.at_start:
        return None
    return plan_evaluation(
        samples=evaluation.samples,
        iterations=evaluation.iters,
        micro_batch_size=evaluation.micro_batch_size or recipe.schedule.micro_batch_size,
        global_batch_size=evaluation.global_batch_size or recipe.schedule.global_batch_size,
        data_parallel_size=parallel_state.get_data_parallel_world_size(),
        num_workers=recipe.data.val_num_workers,
        remainder=evaluation.remainder,
    )


class Evaluations:
    """Runs the evaluations of one run on every rank."""

    def __init__(
        self,
        recipe: Recipe,
        budget: EvalBudget,
        ready: Ready,
        data: DataSettings,
        run_dir: Path,
    ) -> None:
        self.recipe = recipe
        self.budget = budget
        self.ready = ready
        rank = parallel_state.get_data_parallel_rank()
        world = parallel_state.get_data_parallel_world_size()
        self.evaluator = Evaluator(
            ready.built.ddp,
            ready.forward_step,
            lambda: build_loaders(data, rank=rank, world_size=world, training=False),
            budget,
            group=parallel_state.get_data_parallel_group(),
            prefetch=recipe.evaluation.prefetch,
            probes=_probes(recipe, run_dir),
        )

    def is_due(self, step: int) -> bool:
        """Whether to evaluate after ``step``."""
        evaluation = self.recipe.evaluation
        if step == 0:
            return evaluation.at_start
        if step == self.recipe.schedule.train_iters and evaluation.at_end:
            return True
        return evaluation.interval is not None and step % evaluation.interval == 0

    def run(self, step: int) -> EvaluationResult:
        """Evaluate the parameters after ``step``, all of them gathered."""
        more = any(self.is_due(n) for n in self._later(step))
        with self.ready.hooks.parameters_complete():
            return self.evaluator.run(step, prefetch_next=more)

    def warm_up(self, steps: int) -> float:
        """Forward passes on synthetic data at evaluation's width; returns their seconds."""
        architecture = self.ready.built.config.architecture
        shape = batch_shape(self.recipe, architecture, self.budget.micro_batch_size)
        with self.ready.hooks.parameters_complete():
            return warm_up_validation(self.ready.built.ddp, self.ready.forward_step, shape, steps)

    def close(self) -> None:
        """Drop a batch that is being fetched."""
        self.evaluator.close()

    def _later(self, step: int) -> tuple[int, ...]:
        """Steps after this one at which an evaluation can be due: the next interval's, the last."""
        last, interval = self.recipe.schedule.train_iters, self.recipe.evaluation.interval
        if step >= last:
            return ()
        following = last if interval is None else (step // interval + 1) * interval
        return tuple(n for n in (following, last) if n <= last)


def _probes(recipe: Recipe, run_dir: Path) -> ProbeSettings:
    probes = recipe.probes
    return ProbeSettings(
        profile=probes.evaluation_profile,
        iteration_period=probes.evaluation_iteration_timing,
        fetch_time=probes.batch_fetch_timing,
        directory=run_dir / FOLDER,
    )
