# SPDX-License-Identifier: Apache-2.0
"""Noise levels for training: the flow-matching table and the strategies that draw from it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from mxflux.flux.timestep_names import TIMESTEP_STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

NUM_TRAIN_TIMESTEPS = 1000
MODE_SCALE = 1.29
EVALUATION_LEVELS = 8
"""Validation uses sigma = k/8 for k in 0..7 (MLPerf Training v5.1)."""


def sigma_table(shift: float = 1.0) -> Tensor:
    """Sigmas [1000] fp32, descending: t/1000 for t = 1000..1, then s*sigma / (1 + (s-1)*sigma).

    Source: arXiv 2403.03206, equation 23. Raises ValueError unless ``shift`` is positive.
    """
    if shift <= 0:
        raise ValueError(f"scheduler_shift={shift!r} must be positive")
    steps = torch.arange(NUM_TRAIN_TIMESTEPS, 0, -1, dtype=torch.float32)
    sigma = steps / NUM_TRAIN_TIMESTEPS
    return shift * sigma / (1 + (shift - 1) * sigma)


def sample_sigmas(strategy: str, batch: int, table: Tensor, device: torch.device | str) -> Tensor:
    """Sigmas [batch] fp32 on ``device``.

    "direct_uniform" draws from the device's default generator and ignores the table (which must
    be unshifted); the others draw from the CPU's and look up ``table``.
    Raises ValueError for an unknown strategy.
    """
    if strategy == "direct_uniform":
        if not torch.equal(table, sigma_table()):
            raise ValueError("timestep_sampling_strategy='direct_uniform' needs scheduler_shift=1")
        return torch.rand(batch, device=device)
    if strategy not in _INDEX_RULES:
        raise ValueError(
            f"timestep_sampling_strategy={strategy!r} is unknown. "
            f"Choose from: {', '.join(TIMESTEP_STRATEGIES)}."
        )
    return table[_INDEX_RULES[strategy](batch, len(table))].to(device)


def evaluation_sigmas(batch: int, device: torch.device | str) -> Tensor:
    """Equidistant sigmas (i mod 8)/8 [batch] fp32 of a validation micro-batch."""
    index = torch.arange(batch, device=device) % EVALUATION_LEVELS
    return index.float() / EVALUATION_LEVELS


def sigmas_from_field(timestep: Tensor) -> Tensor:
    """Sigmas timestep/8 fp32 of a dataset's integer field [B] in 0..7; ValueError outside."""
    if timestep.is_floating_point() or timestep.dim() != 1:
        raise ValueError(
            f"timestep must be integers [B], got {timestep.dtype} {tuple(timestep.shape)}"
        )
    if ((timestep < 0) | (timestep >= EVALUATION_LEVELS)).any():
        raise ValueError(f"timestep must lie in 0..7, got {timestep.tolist()}")
    return timestep.float() / EVALUATION_LEVELS


def _logit_normal(batch: int, size: int) -> Tensor:
    return _index(torch.sigmoid(torch.randn(batch)), size)


def _mode(batch: int, size: int) -> Tensor:
    u = torch.rand(batch)
    return _index(1 - u - MODE_SCALE * (torch.cos(math.pi * u / 2) ** 2 - 1 + u), size)


def _uniform(batch: int, size: int) -> Tensor:
    return torch.randint(size, (batch,))


def _index(u: Tensor, size: int) -> Tensor:
    """Positions of u in [0,1] in a table; 1 itself is the last entry."""
    return (u * size).long().clamp(0, size - 1)


_INDEX_RULES: dict[str, Callable[[int, int], Tensor]] = {
    "logit_normal": _logit_normal,
    "uniform": _uniform,
    "mode": _mode,
}
