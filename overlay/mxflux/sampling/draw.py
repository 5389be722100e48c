# SPDX-License-Identifier: Apache-2.0
"""From prompts to pictures: noise, Euler steps, decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from mxflux.data.errors import DataError
from mxflux.data.settings import LATENT_FACTOR
from mxflux.training.sampling import sample_latents, sampling_sigmas

from .context import encode_prompts

if TYPE_CHECKING:
    from torch import Tensor

    from mxflux.flux.model import FluxModel

    from .context import Context


@dataclass(frozen=True)
class Request:
    """What to draw. ``cfg_scale`` 1 means no classifier-free guidance."""

    prompts: tuple[str, ...]
    count: int = 1
    """Pictures of each prompt."""
    steps: int = 40
    cfg_scale: float = 1.0
    guidance: float | None = None
    """For models with a guidance embedding (Flux.1 dev)."""
    seed: int = 0
    size: int = 256
    """Side of a picture in pixels."""
    shift: bool = False
    """Shift the noise levels by the number of image tokens, as Flux.1 dev does."""
    batch: int = 16
    """Pictures drawn together."""


def draw(model: FluxModel, context: Context, request: Request, device: torch.device) -> Tensor:
    """Pictures [count * prompts, 3, size, size] in [-1,1]: all prompts, then all prompts again.

    Picture i starts from noise of its own generator (seed + i), so that neither batch size nor
    device changes it. Raises DataError naming an argument that the model cannot serve.
    """
    check(model, request)
    prompts = [prompt for _ in range(request.count) for prompt in request.prompts]
    side = request.size // LATENT_FACTOR
    shape = (model.config.in_channels // 4, side, side)
    sigmas = sampling_sigmas(request.steps, side * side // 4, dynamic_shift=request.shift)
    dtype = model.img_embed.weight.dtype
    empty = context.empty.to(device, dtype)
    pictures = []
    for start in range(0, len(prompts), request.batch):
        part = prompts[start : start + request.batch]
        noise = torch.stack([_noise(shape, request.seed + start + i) for i in range(len(part))])
        prompt, pooled = encode_prompts(context, part)
        latents = sample_latents(
            model,
            noise.to(device),
            prompt.to(device, dtype),
            pooled.to(device, dtype),
            sigmas,
            guidance=request.guidance,
            cfg_scale=request.cfg_scale,
            empty=empty,
        )
        pictures.append(context.decode(latents.float().cpu()))
    return torch.cat(pictures)


def check(model: FluxModel, request: Request) -> None:
    """Raise DataError naming what does not fit the model."""
    if not request.prompts:
        raise DataError("nothing to draw: give --prompt TEXT")
    for name in ("count", "steps", "batch"):
        if getattr(request, name) < 1:
            raise DataError(f"--{name} {getattr(request, name)} must be positive")
    if request.size < 1 or request.size % (2 * LATENT_FACTOR):
        raise DataError(f"--size {request.size} must be a positive multiple of {2 * LATENT_FACTOR}")
    if model.config.guidance_embed != (request.guidance is not None):
        has = "has a" if model.config.guidance_embed else "has no"
        raise DataError(f"--guidance {request.guidance}: this model {has} guidance embedding")


def _noise(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
