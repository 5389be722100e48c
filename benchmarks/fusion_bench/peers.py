# SPDX-License-Identifier: Apache-2.0
"""Kernels of TransformerEngine and Liger that compute the same as a fused op, where installed.

Neither has one kernel for norm + RoPE: theirs is a chain of two, on copies, as Megatron-LM runs it.
A LayerNorm with weight 1 + scale and bias shift is LN-modulate for a batch of one sample.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any

import torch

from fusion_bench.ops import Op
from mxflux.fusions.rope_table import RopeTable

Tensor = torch.Tensor
EPS = 1e-6
TE_RMS = "TE RMSNorm + TE RoPE"
LIGER_RMS = "Liger RMSNorm + Liger RoPE"


@dataclass(frozen=True)
class Peer:
    """A name and what takes the op's arguments; batch: the only one for which the maths agree."""

    name: str
    run: Any
    batch: int | None = None


def peers(op: Op) -> tuple[list[Peer], list[str]]:
    """What is installed and computes the same, and why the rest is left out."""
    found: list[Peer] = []
    missing: list[str] = []
    for module, make in (("transformer_engine", _te), ("liger_kernel", _liger)):
        if importlib.util.find_spec(module) is None:
            missing.append(f"{op.name}: {module} is not installed")
        else:
            found += make(op)
    return found, missing


def _te(op: Op) -> list[Peer]:
    importlib.import_module("transformer_engine.pytorch")  # loads its extension, wherever it is
    if op.name.startswith("norm_rope"):
        return [Peer(TE_RMS, _te_qkv if op.name == "norm_rope_qkv" else _te_q)]
    return [Peer("TE LayerNorm", _te_layernorm, batch=1)] if op.name == "ln_modulate" else []


def _liger(op: Op) -> list[Peer]:
    if op.name == "norm_rope_qkv":
        return [Peer(LIGER_RMS, _liger_qkv)]
    return [Peer("Liger LayerNorm", _liger_layernorm, batch=1)] if op.name == "ln_modulate" else []


def _angles(table: RopeTable) -> Tensor:
    """[S, 1, 1, D] fp32, each angle twice: the frequencies that TE takes."""
    cos, sin = table.cos_sin.chunk(2, dim=-1)
    return torch.atan2(sin, cos).repeat_interleave(2, dim=-1).unsqueeze(1).contiguous()


class _Cached:
    """A peer's form of a table, made once: a model keeps it too."""

    def __init__(self, make: Any) -> None:
        self.make, self.kept = make, (None, None)

    def __call__(self, table: RopeTable, *more: int) -> Tensor:
        if self.kept[0] != (id(table), *more):
            self.kept = ((id(table), *more), self.make(table, *more))
        return self.kept[1]


_te_angles = _Cached(_angles)


class _TERMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        tex = importlib.import_module("transformer_engine_torch")
        flat = x.view(-1, x.shape[-1])
        out, _, rstd = tex.rmsnorm_fwd(flat, weight, EPS, None, None, tex.DType.kBFloat16, 0, False)
        ctx.save_for_backward(flat, weight, rstd)
        return out.view(x.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        tex = importlib.import_module("transformer_engine_torch")
        x, weight, rstd = ctx.saved_tensors
        dx, dweight = tex.rmsnorm_bwd(grad.contiguous().view(x.shape), x, rstd, weight, 0, False)
        return dx.view(grad.shape), dweight


def _te_q(q: Tensor, weight: Tensor, table: RopeTable) -> tuple[Tensor, ...]:
    rope = importlib.import_module("transformer_engine.pytorch.attention.rope")
    normed = _TERMSNorm.apply(q.contiguous(), weight)
    return (
        rope.apply_rotary_pos_emb(
            normed, _te_angles(table), tensor_format="sbhd", interleaved=True, fused=True
        ),
    )


def _te_qkv(
    mixed: Tensor, q_weight: Tensor, k_weight: Tensor, table: RopeTable
) -> tuple[Tensor, ...]:
    q, k, v = mixed.chunk(3, dim=-1)
    return *_te_q(q, q_weight, table), *_te_q(k, k_weight, table), v.contiguous()


class _TELayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        tex = importlib.import_module("transformer_engine_torch")
        flat = x.view(-1, x.shape[-1])
        out, mean, rstd = tex.layernorm_fwd(
            flat, weight, bias, EPS, None, None, tex.DType.kBFloat16, 0, True
        )
        ctx.save_for_backward(flat, weight, mean, rstd)
        return out.view(x.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        tex = importlib.import_module("transformer_engine_torch")
        x, weight, mean, rstd = ctx.saved_tensors
        dx, *others = tex.layernorm_bwd(grad.view(x.shape), x, mean, rstd, weight, 0, True)
        return dx.view(grad.shape), *others


def _te_layernorm(x: Tensor, scale: Tensor, shift: Tensor, _: Any) -> tuple[Tensor, ...]:
    # "zero-centred gamma" is TE's name for a weight of 1 + scale
    return (_TELayerNorm.apply(x, scale.view(-1), shift.view(-1)),)


def _complex_rows(table: RopeTable, batch: int) -> Tensor:
    """[S*B, D/2] complex: Liger finds a row of its table by the row of q."""
    cos, sin = table.cos_sin.chunk(2, dim=-1)
    rows = torch.complex(cos, sin).view(cos.shape[0], -1)
    return rows.repeat_interleave(batch, dim=0).contiguous()


_liger_rows = _Cached(_complex_rows)


def _liger_qkv(
    mixed: Tensor, q_weight: Tensor, k_weight: Tensor, table: RopeTable
) -> tuple[Tensor, ...]:
    norm = importlib.import_module("liger_kernel.ops.rms_norm").LigerRMSNormFunction
    rope = importlib.import_module("liger_kernel.ops.llama4_rope").LigerLlama4RopeFunction
    q, k, v = mixed.chunk(3, dim=-1)
    seq, batch, heads, dim = q.shape
    normed = [
        norm.apply(t.contiguous(), w, EPS, 0.0, "gemma", False).view(1, seq * batch, heads, dim)
        for t, w in ((q, q_weight), (k, k_weight))
    ]
    rotated = rope.apply(*normed, _liger_rows(table, batch))
    return *(t.view(q.shape) for t in rotated), v.contiguous()


def _liger_layernorm(x: Tensor, scale: Tensor, shift: Tensor, _: Any) -> tuple[Tensor, ...]:
    norm = importlib.import_module("liger_kernel.ops.layer_norm").LigerLayerNormFunction
    return (norm.apply(x, (1 + scale).view(-1), shift.reshape(-1), EPS),)
