# SPDX-License-Identifier: Apache-2.0
"""Tensors of one block-stream of Flux, on the device that is timed."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mxflux.fusions.catalog import HEAD_DIM, HEADS, HIDDEN
from mxflux.fusions.rope_table import RopeTable

Tensor = torch.Tensor
BF16 = torch.bfloat16
DEVICE = "cuda"
WIDE = 4
"""Inner width of the MLP over the hidden size."""


@dataclass
class Inputs:
    """Tensors of one block-stream at [seq, batch]."""

    x: Tensor
    y: Tensor
    gate: Tensor
    scale: Tensor
    shift: Tensor
    inner: Tensor
    grad_inner: Tensor
    mixed: Tensor
    weights: tuple[Tensor, Tensor]
    table: Tensor
    grads: tuple[Tensor, Tensor, Tensor]
    rng: Tensor


def inputs(seq: int, batch: int, hidden: int = HIDDEN, heads: int = HEADS) -> Inputs:
    """Normal values in bf16."""
    torch.manual_seed(seq + batch)
    dim = HEAD_DIM if hidden == HIDDEN else hidden // heads

    def normal(*sizes: int) -> Tensor:
        return torch.randn(sizes, device=DEVICE, dtype=BF16)

    angles = torch.rand(seq, 1, 1, dim // 2, device=DEVICE).repeat_interleave(2, -1) * 6.28
    parts = normal(batch, 6 * hidden).chunk(6, -1)
    return Inputs(
        normal(seq, batch, hidden), normal(seq, batch, hidden), *parts[:3],
        normal(seq * batch, WIDE * hidden), normal(seq * batch, WIDE * hidden),
        normal(seq, batch, heads, 3 * dim),
        (1 + 0.1 * normal(dim), 1 + 0.1 * normal(dim)), RopeTable.from_angles(angles).cos_sin,
        (normal(seq, batch, heads, dim), normal(seq, batch, heads, dim),
         normal(seq, batch, heads, dim)),
        torch.tensor([1, 2], device=DEVICE),
    )  # fmt: skip
