# SPDX-License-Identifier: Apache-2.0
"""Euler sampling of the flow: from noise to latents."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import torch

from mxflux.flux.patchify import image_ids, pack_latents, text_ids, unpack_latents

if TYPE_CHECKING:
    from torch import Tensor

    from .cfg_dropout import EmptyEncodings

BASE_SHIFT, MAX_SHIFT = 0.5, 1.15
BASE_TOKENS, MAX_TOKENS = 256, 4096


class Velocity(Protocol):
    """FluxModel's call."""

    def __call__(
        self, img: Tensor, txt: Tensor, y: Tensor, timesteps: Tensor, img_ids: Tensor,
        txt_ids: Tensor, guidance: Tensor | None = None,
    ) -> Tensor: ...  # fmt: skip


def sampling_sigmas(steps: int, image_tokens: int, *, dynamic_shift: bool) -> Tensor:
    """Sigmas [steps+1] fp64 from 1 down to 0.

    With ``dynamic_shift`` (Flux.1 dev) sigma becomes e^mu / (e^mu + 1/sigma - 1), where mu grows
    linearly from 0.5 at 256 image tokens to 1.15 at 4096. Schnell uses none.
    Source: BFL flux ``sampling.get_schedule``. Raises ValueError unless ``steps`` is positive.
    """
    if steps < 1:
        raise ValueError(f"steps={steps} must be positive")
    sigmas = torch.linspace(1, 0, steps + 1, dtype=torch.float64)
    if not dynamic_shift:
        return sigmas
    slope = (MAX_SHIFT - BASE_SHIFT) / (MAX_TOKENS - BASE_TOKENS)
    factor = math.exp(BASE_SHIFT + slope * (image_tokens - BASE_TOKENS))
    # 1/sigma is infinite at the end, where the result is 0.
    return factor / (factor + 1 / sigmas - 1)


@torch.no_grad()
def sample_latents(
    model: Velocity,
    noise: Tensor,
    prompt: Tensor,
    pooled: Tensor,
    sigmas: Tensor,
    *,
    guidance: float | None = None,
    cfg_scale: float = 1.0,
    empty: EmptyEncodings | None = None,
) -> Tensor:
    """Integrate dx/dsigma = velocity from sigmas[0] to sigmas[-1]; latents [B,C,H,W] fp32.

    noise [B,C,H,W], prompt [B,S,D], pooled [B,D']. ``guidance`` feeds a guidance-distilled
    model's embedding; ``cfg_scale`` != 1 extrapolates from the velocity of the empty prompt,
    which costs a second evaluation a step. The state is kept in fp32; the model sees the
    prompt's dtype. Raises ValueError when cfg_scale needs ``empty`` and there is none.
    """
    if cfg_scale != 1.0 and empty is None:
        raise ValueError(f"cfg_scale={cfg_scale} needs the encodings of the empty prompt")
    conditions = [(prompt, pooled)]
    if cfg_scale != 1.0 and empty is not None:
        batch = noise.shape[0]
        conditions.append((empty.t5.expand(batch, -1, -1), empty.clip.expand(batch, -1)))
    state = noise.float()
    for start, stop in zip(sigmas[:-1].tolist(), sigmas[1:].tolist(), strict=True):
        velocities = [
            _velocity(model, state.to(prompt.dtype), text, pool, start, guidance)
            for text, pool in conditions
        ]
        velocity = velocities[0]
        if len(velocities) > 1:
            velocity = velocities[1] + cfg_scale * (velocities[0] - velocities[1])
        state = state + (stop - start) * velocity
    return state


def _velocity(
    model: Velocity, state: Tensor, prompt: Tensor, pooled: Tensor, sigma: float,
    guidance: float | None,
) -> Tensor:  # fmt: skip
    batch, _, height, width = state.shape

    def filled(value: float) -> Tensor:
        return torch.full((batch,), value, dtype=state.dtype, device=state.device)

    out = model(
        pack_latents(state).transpose(0, 1).contiguous(),
        prompt.to(state.dtype).transpose(0, 1).contiguous(),
        pooled.to(state.dtype),
        filled(sigma),
        image_ids(1, height, width, device=state.device),
        text_ids(1, prompt.shape[1], device=state.device),
        None if guidance is None else filled(guidance),
    )
    return unpack_latents(out.transpose(0, 1), height, width).float()
