# SPDX-License-Identifier: Apache-2.0
"""Batch arithmetic: global batch = micro batch x data-parallel ranks x accumulation."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mxflux.evaluation.budget import plan_evaluation
from mxflux.evaluation.errors import EvaluationError

if TYPE_CHECKING:
    from mxflux.evaluation.budget import EvalBudget
    from mxflux.recipe.schema import Recipe


@dataclass(frozen=True)
class Batch:
    """How the samples of a step are spread; ``problems`` do not let the run start."""

    world_size: int
    data_parallel_size: int
    micro_batch_size: int
    accumulation: int
    global_batch_size: int
    train_samples: int
    evaluation: EvalBudget | None
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.global_batch_size} samples a step = {self.micro_batch_size} (micro batch) x "
            f"{self.data_parallel_size} (data-parallel ranks) x {self.accumulation} (accumulation)"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as the machine form of a plan has them."""
        return {key: value for key, value in asdict(self).items() if key != "problems"}


def of(recipe: Recipe, world_size: int) -> Batch:
    """Return the arithmetic of ``recipe`` on ``world_size`` ranks."""
    schedule, ranks = recipe.schedule, max(1, world_size // _model_parallel(recipe))
    evaluation, problem = _evaluation(recipe, ranks)
    return Batch(
        world_size=world_size,
        data_parallel_size=ranks,
        micro_batch_size=schedule.micro_batch_size,
        accumulation=schedule.global_batch_size // (schedule.micro_batch_size * ranks),
        global_batch_size=schedule.global_batch_size,
        train_samples=schedule.train_iters * schedule.global_batch_size,
        evaluation=evaluation,
        problems=(*_undivided(recipe, world_size), *_indivisible(recipe, ranks), *problem),
    )


def _model_parallel(recipe: Recipe) -> int:
    parallel = recipe.parallel
    return (
        parallel.tensor_model_parallel_size
        * parallel.pipeline_model_parallel_size
        * parallel.context_parallel_size
    )


def _undivided(recipe: Recipe, world_size: int) -> list[str]:
    width = _model_parallel(recipe)
    if world_size % width == 0:
        return []
    problem = f"{world_size} ranks do not divide into model-parallel groups of {width}"
    return [f"{problem} (parallel.*_parallel_size)"]


def _indivisible(recipe: Recipe, ranks: int) -> list[str]:
    """Say why the samples of a step cannot be spread, with the nearest sizes that can."""
    micro, total = recipe.schedule.micro_batch_size, recipe.schedule.global_batch_size
    step = micro * ranks
    if total % step == 0:
        return []
    nearest = sorted({max(1, total // step) * step, math.ceil(total / step) * step})
    problem = (
        f"schedule.global_batch_size {total} is not a multiple of schedule.micro_batch_size "
        f"{micro} x {ranks} data-parallel ranks = {step}: use {' or '.join(map(str, nearest))}, "
        "another micro batch, or another --nproc"
    )
    return [problem]


def _evaluation(recipe: Recipe, ranks: int) -> tuple[EvalBudget | None, list[str]]:
    asked = recipe.evaluation
    if asked.interval is None and not asked.at_start:
        return None, []
    try:
        budget = plan_evaluation(
            samples=asked.samples,
            iterations=asked.iters,
            micro_batch_size=asked.micro_batch_size or recipe.schedule.micro_batch_size,
            global_batch_size=asked.global_batch_size or recipe.schedule.global_batch_size,
            data_parallel_size=ranks,
            num_workers=recipe.data.val_num_workers,
            remainder=asked.remainder,
        )
    except EvaluationError as error:
        return None, [f"evaluation: {error}"]
    return budget, []
