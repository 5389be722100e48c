# SPDX-License-Identifier: Apache-2.0
"""The fused ops with their unfused chains, inputs and least bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from mxflux.fusions import catalog, reference
from mxflux.fusions.gate_residual import gate_residual_ln_modulate
from mxflux.fusions.ln_modulate import ln_modulate
from mxflux.fusions.norm_rope import norm_rope
from mxflux.fusions.norm_rope_qkv import norm_rope_qkv
from mxflux.fusions.rope_table import RopeTable

Tensor = torch.Tensor
BF16 = torch.bfloat16
DEVICE = "cuda"


@dataclass(frozen=True)
class Op:
    """One fused op with its unfused chain. run and chain take the differentiable inputs, then the
    table.
    """

    name: str
    run: Any
    chain: Any
    registered: Any
    inputs: Any
    forward_bytes: Any
    backward_bytes: Any


def rope_inputs(
    seq: int, batch: int, heads: int = catalog.HEADS, dim: int = catalog.HEAD_DIM
) -> tuple:
    """mixed, q_weight, k_weight and the cos-sin table."""
    mixed = torch.randn(seq, batch, heads, 3 * dim, device=DEVICE, dtype=BF16)
    weights = [1 + 0.1 * torch.randn(dim, device=DEVICE) for _ in range(2)]
    angles = torch.rand(seq, 1, 1, dim // 2, device=DEVICE).repeat_interleave(2, -1) * 6.28
    return [mixed, *(w.to(BF16) for w in weights)], RopeTable.from_angles(angles)


def q_inputs(
    seq: int, batch: int, heads: int = catalog.HEADS, dim: int = catalog.HEAD_DIM
) -> tuple:
    """q as a strided slice of a packed projection, its weight and the table.

    The slice is the leaf: autograd's own backward of the slicing (a zero fill and a copy of the
    whole projection) is not the op's time.
    """
    (mixed, weight, _), table = rope_inputs(seq, batch, heads, dim)
    return [mixed[..., :dim], weight], table


def ln_inputs(seq: int, batch: int, count: int, width: int = catalog.HIDDEN) -> tuple:
    """count hidden states, then gate, scale, shift (or scale, shift) as chunks of one
    projection.
    """
    hidden = [torch.randn(seq, batch, width, device=DEVICE, dtype=BF16) for _ in range(count)]
    parts = torch.randn(batch, 6 * width, device=DEVICE, dtype=BF16).chunk(6, dim=-1)
    return [*hidden, *parts[: count + 1]], None


def rope_bytes(seq: int, batch: int, tensors: int) -> int:
    """`tensors` [S, B, hidden] bf16 tensors, the rstd of q and k, the table."""
    return (
        tensors * 2 * seq * batch * catalog.HIDDEN
        + 8 * seq * batch * catalog.HEADS
        + 4 * seq * catalog.HEAD_DIM
    )


def ln_bytes(seq: int, batch: int, tensors: int, parameters: int) -> int:
    """`tensors` hidden states, mean and rstd, `parameters` [B, hidden] vectors, all bf16 but the
    statistics.
    """
    return 2 * catalog.HIDDEN * (tensors * seq * batch + parameters * batch) + 8 * seq * batch


OPS = (
    Op(
        "norm_rope_qkv",
        norm_rope_qkv,
        lambda m, qw, kw, table: tuple(
            t.contiguous() for t in reference.norm_rope_qkv(m, qw, kw, table.cos_sin.to(wide(m)))
        ),
        lambda m, qw, kw, table: torch.ops.mxflux.norm_rope_qkv(m, qw, kw, table.cos_sin, 1e-6)[:3],
        rope_inputs,
        lambda s, b: rope_bytes(s, b, 6),
        lambda s, b: rope_bytes(s, b, 8),
    ),
    Op(
        "norm_rope (q)",
        lambda q, qw, table: (norm_rope(q, qw, table),),
        lambda q, qw, table: (reference.norm_rope(q, qw, table.cos_sin.to(wide(q))),),
        lambda q, qw, table: torch.ops.mxflux.norm_rope(q, qw, table.cos_sin, 1e-6)[:1],
        q_inputs,
        lambda s, b: rope_bytes(s, b, 2),
        lambda s, b: rope_bytes(s, b, 3),
    ),
    Op(
        "ln_modulate",
        lambda x, sc, sh, _: (ln_modulate(x, sc, sh),),
        lambda x, sc, sh, _: (reference.ln_modulate(x, sc, sh),),
        lambda x, sc, sh, _: torch.ops.mxflux.ln_modulate(x, sc, sh, 1e-6)[:1],
        lambda s, b, *a: ln_inputs(s, b, 1, *a),
        lambda s, b: ln_bytes(s, b, 2, 2),
        lambda s, b: ln_bytes(s, b, 3, 3),
    ),
    Op(
        "gate_residual_ln_modulate",
        lambda x, y, g, sc, sh, _: gate_residual_ln_modulate(x, y, g, sc, sh),
        lambda x, y, g, sc, sh, _: reference.gate_residual_ln_modulate(x, y, g, sc, sh),
        lambda x, y, g, sc, sh, _: torch.ops.mxflux.gate_residual_ln_modulate(
            x, y, g, sc, sh, 1e-6
        )[:2],
        lambda s, b, *a: ln_inputs(s, b, 2, *a),
        lambda s, b: ln_bytes(s, b, 4, 3),
        lambda s, b: ln_bytes(s, b, 6, 5),
    ),
)


def wide(x: Tensor) -> torch.dtype:
    """fp64 for fp64, else fp32: the dtype in which a table is handed to a chain."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32
