# SPDX-License-Identifier: Apache-2.0
"""Warm the validation graphs up on synthetic data, before the clock starts and without a trace."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from mxflux.training.packed_weights import pack_weights_anew

from .evaluator import evaluating
from .rng import preserved_rng

if TYPE_CHECKING:
    from torch import Tensor

    from mxflux.training.forward_step import FluxForwardStep

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatchShape:
    """Sizes of a pre-encoded batch: latents [B,C,H,W], prompt [B,S,context], pooled [B,vec]."""

    micro_batch_size: int
    channels: int
    height: int
    width: int
    text_length: int
    context_dim: int
    vec_in_dim: int


def synthetic_batch(
    shape: BatchShape, latent_keys: tuple[str, ...], *, timesteps: bool = False
) -> dict[str, Tensor]:
    """A batch of normal numbers on the CPU, from a generator of its own; the same at each call.

    ``latent_keys`` are those of the run's LatentMode. ``timesteps`` adds the field of validation
    data, 0..7 in turn.
    """
    own = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(shape.micro_batch_size, *size, generator=own)

    batch = {key: normal(shape.channels, shape.height, shape.width) for key in latent_keys}
    batch["prompt_embeds"] = normal(shape.text_length, shape.context_dim)
    batch["pooled_prompt_embeds"] = normal(shape.vec_in_dim)
    if timesteps:
        batch["timestep"] = torch.arange(shape.micro_batch_size) % 8
    return batch


def warm_up_validation(
    model: torch.nn.Module,
    forward_step: FluxForwardStep,
    shape: BatchShape,
    steps: int,
    *,
    iteration: int = 0,
) -> float:
    """Run ``steps`` forward passes as evaluation would; returns the seconds that took.

    Run it last before the first training step, after every state of the training warm-up is
    restored. It takes the evaluation micro-batch size (``shape``), no gradient, and leaves mode,
    generators and counters as they were; it never touches the real loader. A resumed run
    (``iteration`` > 0) skips it and says so.
    """
    if steps < 1:
        return 0.0
    if iteration > 0:
        logger.info("warmup_validation_steps skipped: resumed at iteration %d", iteration)
        return 0.0
    start = time.perf_counter()
    mode = forward_step.settings.latent_mode
    batch = synthetic_batch(shape, mode.keys, timesteps=True)
    counter = forward_step.counter
    before = counter.training, counter.evaluation
    with preserved_rng(forward_step.device), evaluating(model), torch.no_grad():
        pack_weights_anew(model)
        for _ in range(steps):
            forward_step.run(batch, model)
    counter.training, counter.evaluation = before
    if forward_step.device.type == "cuda":
        torch.cuda.synchronize(forward_step.device)
    seconds = time.perf_counter() - start
    logger.info(
        "warmup_validation_steps: %d of micro-batch size %d on synthetic data in %.1f s",
        steps, shape.micro_batch_size, seconds,
    )  # fmt: skip
    return seconds
