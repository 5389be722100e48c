# SPDX-License-Identifier: Apache-2.0
"""Embeddings outside the transformer: sinusoid, MLP embedder, plain linear."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

MAX_PERIOD = 10000


def sinusoidal_embedding(values: Tensor, channels: int) -> Tensor:
    """Embedding [B,channels] of values [B]: cosines first, then sines, in values.dtype.

    freq_i = exp(-ln(10000) * i / (channels/2)); the maths is fp32 at least.
    Raises ValueError unless ``values`` is 1-D and ``channels`` even.
    Source: diffusers ``get_timestep_embedding(flip_sin_to_cos=True, downscale_freq_shift=0)``.
    """
    if values.dim() != 1:
        raise ValueError(f"values must be 1-D, got shape {tuple(values.shape)}")
    if channels % 2:
        raise ValueError(f"channels={channels} must be even")
    dtype = torch.promote_types(values.dtype, torch.float32)
    half = channels // 2
    index = torch.arange(half, dtype=dtype, device=values.device)
    angles = values.to(dtype)[:, None] * torch.exp(index * (-math.log(MAX_PERIOD) / half))
    return torch.cat((torch.cos(angles), torch.sin(angles)), dim=-1).to(values.dtype)


class PlainLinear(nn.Linear):
    """A linear that never is quantized and that draws no random number when it is built."""

    def reset_parameters(self) -> None:
        """Leave the weights to ``mxflux.flux.initialization``."""


class MLPEmbedder(nn.Module):
    """in_layer, SiLU, out_layer, both with bias: [B,in_features] -> [B,hidden_size]."""

    def __init__(
        self, in_features: int, hidden_size: int, *, dtype: torch.dtype, device: torch.device | None
    ) -> None:
        super().__init__()
        self.in_layer = PlainLinear(in_features, hidden_size, dtype=dtype, device=device)
        self.out_layer = PlainLinear(hidden_size, hidden_size, dtype=dtype, device=device)

    def forward(self, x: Tensor) -> Tensor:
        """Embed x [B,in_features]."""
        out: Tensor = self.out_layer(nn.functional.silu(self.in_layer(x)))
        return out


class TimestepEmbedding(nn.Module):
    """Sinusoid followed by an MLP embedder, of a timestep [B] already multiplied by 1000."""

    def __init__(
        self, channels: int, hidden_size: int, *, dtype: torch.dtype, device: torch.device | None
    ) -> None:
        super().__init__()
        self.channels = channels
        self.time_embedding = MLPEmbedder(channels, hidden_size, dtype=dtype, device=device)

    def forward(self, timesteps: Tensor) -> Tensor:
        """Embed timesteps [B] into [B,hidden_size]."""
        out: Tensor = self.time_embedding(sinusoidal_embedding(timesteps, self.channels))
        return out
