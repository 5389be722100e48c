# SPDX-License-Identifier: Apache-2.0
"""Every chain: the fused call, what runs with the gates off, the bytes that the fused one moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from chain_bench.inputs import BF16, WIDE, Inputs
from mxflux.fusions import gate_residual, ln_modulate, mx_norm, mx_pack, norm_rope_qkv
from mxflux.fusions.catalog import size
from mxflux.mx.plans import LinearPlan
from mxflux.mx.triton_packers import pack

Tensor = torch.Tensor


@dataclass(frozen=True)
class Chain:
    """One chain: what replaces what. key: of its target and prediction. bytes: the least that the
    fused one moves.
    """

    name: str
    key: str
    fused: Callable[[], Any]
    unfused: Callable[[], Any]
    bytes: int


def chains(given: Inputs, plan: LinearPlan) -> list[Chain]:
    """Every chain on these inputs."""
    return [
        *norm_chains(given, plan),
        *mlp_chains(given, plan),
        qkv_chain(given, plan),
        evaluation(given, plan),
    ]


def norm_chains(given: Inputs, plan: LinearPlan) -> list[Chain]:
    """LN-modulate in front of one pack, of a pack that two linears share, and behind a gated
    residual.
    """
    x, scale, shift = given.x, given.scale, given.shift
    row, col = str(plan.x_row), str(plan.x_col)

    def fused() -> Any:
        return mx_pack.ln_pack(x, scale, shift, *mx_norm.statistics(x, scale, 1e-6), row, col)

    def plain(packs: int) -> Any:
        out = ln_modulate._forward(x, scale, shift, 1e-6)[0].flatten(0, 1)
        return [pack(out, None, row, col) for _ in range(packs)]

    def gated() -> Any:
        h, mean, rstd = mx_norm.gated(x, given.y, given.gate, 1e-6)
        return mx_pack.ln_pack(h, scale, shift, mean, rstd, row, col)

    def plain_gated() -> Any:
        _, out, *_ = gate_residual._forward(x, given.y, given.gate, scale, shift, 1e-6)
        return pack(out.flatten(0, 1), None, row, col)

    shared = "LN-modulate -> one pack for qkv and fc1"
    residual = "gated residual + LN-modulate -> pack"
    blobs = size(*fused())
    least = size(x) + blobs
    return [
        Chain("LN-modulate -> pack", "ln", fused, lambda: plain(1), least),
        Chain(shared, "ln shared", fused, lambda: plain(2), least),
        Chain(residual, "ln gated", gated, plain_gated, 3 * size(x) + blobs),
    ]


def mlp_chains(given: Inputs, plan: LinearPlan) -> list[Chain]:
    """The activation and the packs around it, forward and backward.

    fc1's bias is on neither side: the fused MLP adds it to the GEMM's result, which is not timed.
    """
    h, g = given.inner, given.grad_inner
    row, col = str(plan.x_row), str(plan.x_col)
    d_row, d_col = str(plan.dy_row), str(plan.dy_col)

    def plain() -> Any:
        act = torch.nn.functional.gelu(h, approximate="tanh")
        return pack(act, None, row, col)

    def plain_backward() -> Any:
        d = torch.ops.aten.gelu_backward(g, h, approximate="tanh")
        return pack(d, given.rng, d_row, d_col), d.sum(0)

    def backward() -> Any:
        return mx_pack.gelu_grad_pack(g, h, given.rng, d_row, d_col, BF16)

    def forward() -> Any:
        return mx_pack.gelu_pack(h, row, col)

    down = "GELU backward, bias gradient -> pack (fc1's gradient)"
    moved = size(h, g, *backward()[0])
    return [
        Chain("GELU -> pack (fc2's input)", "mlp forward", forward, plain, size(h, *forward())),
        Chain(down, "mlp backward", backward, plain_backward, moved),
    ]


def qkv_chain(given: Inputs, plan: LinearPlan) -> Chain:
    """The backward of QK-norm and RoPE in front of the pack of linear_qkv's gradient."""
    row, col = str(plan.dy_row), str(plan.dy_col)
    mixed, weights, table = given.mixed, given.weights, given.table
    rstd = norm_rope_qkv._forward(mixed, *weights, table, 1e-6)[3]
    flat = mixed.shape[0] * mixed.shape[1]

    def fused() -> Any:
        return mx_pack.qkv_grad_pack(
            given.grads, mixed, weights, table, rstd, given.rng, row, col, BF16
        )

    def plain() -> Any:
        d, *_ = norm_rope_qkv._backward(*given.grads, mixed, *weights, table, rstd)
        return pack(d.view(flat, -1), given.rng, row, col)

    least = size(*given.grads, rstd, table, *fused()[0]) + size(mixed) * 2 // 3
    return Chain("backward of QK-norm + RoPE -> pack, bias gradient", "qkv", fused, plain, least)


def evaluation(given: Inputs, plan: LinearPlan) -> Chain:
    """All packs of a single block's forward: rows only against both directions."""
    x, inner = given.x.flatten(0, 1), given.inner
    row, col, w_row, w_col = map(str, (plan.x_row, plan.x_col, plan.w_row, plan.w_col))
    width = x.shape[1]
    sizes = ((3 * width, width), (width, width), (WIDE * width, width), (width, WIDE * width))
    weights = [torch.randn(s, device=x.device, dtype=BF16) for s in sizes]

    def run(columns: bool) -> Any:
        made = [pack(t, None, row, col if columns else "") for t in (x, x, x, inner)]
        return [*made, *(pack(w, None, w_row, w_col if columns else "") for w in weights)]

    rows = run(False)
    least = 3 * size(x) + size(inner, *weights) + sum(size(*blobs) for blobs in rows)
    return Chain("evaluation: rows only", "row only", lambda: run(False), lambda: run(True), least)
