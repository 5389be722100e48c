# SPDX-License-Identifier: Apache-2.0
"""Training steps on synthetic data before the run, after which every state is as before."""

from __future__ import annotations

import itertools
import logging
import time
from typing import TYPE_CHECKING

from mxflux.evaluation.rng import preserved_rng
from mxflux.evaluation.warmup import BatchShape, synthetic_batch

from .snapshot import TrainingSnapshot

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from mxflux.flux.architecture import FluxArchitecture
    from mxflux.recipe.schema import Recipe

    from .step import TrainStep

logger = logging.getLogger(__name__)
VAE_FACTOR = 8
PATCH_CHANNELS = 4
"""A token holds the four pixels of a 2x2 patch."""


def batch_shape(recipe: Recipe, arch: FluxArchitecture, micro_batch_size: int) -> BatchShape:
    """Sizes of a batch as recipe and architecture say, before any data is read."""
    side = recipe.data.image_size // VAE_FACTOR
    return BatchShape(
        micro_batch_size=micro_batch_size,
        channels=arch.in_channels // PATCH_CHANNELS,
        height=side,
        width=side,
        text_length=recipe.data.text_length,
        context_dim=arch.context_dim,
        vec_in_dim=arch.vec_in_dim,
    )


def warm_up_training(
    train_step: TrainStep,
    shape: BatchShape,
    steps: int,
    watched: AbstractContextManager[None],
) -> float:
    """Run ``steps`` optimizer steps on synthetic data; returns the seconds that took.

    Parameters, optimizer, schedule, generators and counters are bit-equal afterwards, and nothing
    is left that could go on reading the synthetic data. ``watched`` surrounds the first of them.
    A resumed run must not warm up: its caller skips this.
    """
    start = time.perf_counter()
    forward_step = train_step.forward_step
    keys = forward_step.settings.latent_mode.keys
    batches = itertools.repeat(synthetic_batch(shape, keys))
    with preserved_rng(forward_step.device):
        before = TrainingSnapshot(train_step.built, forward_step)
        try:
            with watched:
                train_step(batches, 0)
            for _ in range(steps - 1):
                train_step(batches, 0)
        finally:
            before.restore()
    seconds = time.perf_counter() - start
    logger.info("warmup_train_steps: %d on synthetic data in %.1f s", steps, seconds)
    return seconds
