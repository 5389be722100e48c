# SPDX-License-Identifier: Apache-2.0
"""Everything that a rank needs before its first step, built in Megatron's order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxflux.data import empty_encodings

from .batch import LatentMode
from .build import Built, build
from .compilation import TracedOperators, compile_model, compiled_roots
from .forward_step import FluxForwardStep, StepSettings
from .parameter_hooks import ParameterHooks
from .step import TrainStep

if TYPE_CHECKING:
    from mxflux.data import DataSettings
    from mxflux.recipe.schema import Recipe

    from .process import Process


@dataclass(frozen=True)
class Ready:
    """What a rank trains with, wired together."""

    built: Built
    forward_step: FluxForwardStep
    train_step: TrainStep
    hooks: ParameterHooks
    traced: TracedOperators | None


def make_ready(
    recipe: Recipe,
    process: Process,
    data: DataSettings,
    *,
    data_parallel_rank: int,
    num_microbatches: int,
) -> Ready:
    """Build, wrap, compile; the parameters are fresh."""
    built = build(recipe, process)
    traced = compile_model(recipe, built.model)
    forward_step = _forward_step(recipe, process, data, built, data_parallel_rank)
    schedule = recipe.schedule
    train_step = TrainStep(
        built,
        forward_step,
        process,
        num_microbatches,
        schedule.micro_batch_size,
        check_for_nan=schedule.check_for_nan_in_loss_and_grad,
        empty_unused_memory_level=schedule.empty_unused_memory_level,
    )
    hooks = ParameterHooks(built.ddp, compiled_roots(recipe, built.model))
    return Ready(built, forward_step, train_step, hooks, traced)


def _forward_step(
    recipe: Recipe, process: Process, data: DataSettings, built: Built, rank: int
) -> FluxForwardStep:
    settings = StepSettings(
        LatentMode(recipe.data.vae_latent_mode, recipe.data.vae_scale, recipe.data.vae_shift),
        seed=recipe.schedule.seed,
        data_parallel_rank=rank,
        per_step_rng_reseed=recipe.schedule.per_step_rng_reseed,
        scheduler_shift=recipe.model.scheduler_shift,
        eval_timestep_source=recipe.evaluation.timestep_source,
    )
    empty = None
    if built.config.cfg_dropout_prob > 0:
        empty = empty_encodings(data, recipe.data.empty_encodings_path)
    return FluxForwardStep(built.config, settings, device=process.device, empty_encodings=empty)
