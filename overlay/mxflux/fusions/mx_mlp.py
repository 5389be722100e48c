# SPDX-License-Identifier: Apache-2.0
"""fc1 -> tanh-GELU -> fc2 with MX linears as one autograd Function.

The packer of fc2's input computes the activation as it reads fc1's output, the packer of fc1's
output gradient its derivative: neither is ever written. fc1's bias goes through the GEMM, so that
what is kept for backward is rounded once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from mxflux.fusions import checks, mx_operands
from mxflux.fusions.mx_operands import Input, LinearUse, PackedInput
from mxflux.fusions.mx_pack import blob_problem, gelu_grad_pack, gelu_pack, record
from mxflux.mx import ops
from mxflux.mx.blob import MXBlob
from mxflux.mx.quantize import ABSENT

Tensor = torch.Tensor


def mx_mlp(x: Input, fc1: Any, fc2: Any) -> Tensor:
    """fc2.weight gelu_tanh(fc1(x)) [S,B,H] of x [S,B,K], fc2's bias not added.

    fc1 (F, K), fc2 (H, F): MX linears. Raises ValueError naming argument, got, expected;
    MissingOperandError for a backward after a forward without gradients.
    """
    checks.require(problem(x, fc1, fc2), "mx_mlp")
    first, second = mx_operands.use_of(fc1), mx_operands.use_of(fc2)
    grad = torch.is_grad_enabled()
    stub = x.stub if isinstance(x, PackedInput) else x
    inner = (first.weight, first.bias, stub)
    needs = (
        grad and stub.requires_grad,
        grad and first.weight.requires_grad,
        grad and any(t is not None and t.requires_grad for t in inner),
        grad and second.weight.requires_grad,
    )
    packed = x if isinstance(x, PackedInput) else None
    uses = (first, second)
    y: Tensor = _MXMLP.apply(stub, first.weight, first.bias, second.weight, uses, packed, needs)
    return y


def problem(x: Input, fc1: Any, fc2: Any) -> str | None:
    """Why these arguments cannot be fused, or None; for gates."""
    found = checks.first(
        mx_operands.linear_problem("linear_fc1", fc1), mx_operands.linear_problem("linear_fc2", fc2)
    )
    found = found or mx_operands.input_problem(x, fc1)
    if found is not None:
        return found
    tokens, inner = x.shape[0] * x.shape[1], fc1.weight.shape[0]
    if fc2.weight.shape[1] != inner:
        return checks.expect("linear_fc2 weight", list(fc2.weight.shape), f"[H, {inner}]")
    return checks.first(
        blob_problem(tokens, inner, str(fc2.plan.x_row)),
        blob_problem(inner, tokens, str(fc2.plan.x_col)),
        mx_operands.gradient_problem(tokens, fc1),
    )


class _MXMLP(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor,  # noqa: ARG004
        uses: tuple[LinearUse, LinearUse], packed: PackedInput | None, needs: tuple[bool, ...],
    ) -> Tensor:  # fmt: skip
        first, second = uses
        needs_x, needs_w1, needs_inner, needs_w2 = needs
        flat = x.reshape(-1, x.shape[-1]) if packed is None else packed
        a, *x_col = mx_operands.pack_input(flat, first, needs_w1)
        b, *w1_col = mx_operands.pack_weight(first, needs_x)
        h = mx_operands.product(a, b, first, x.dtype)
        row, col = str(second.plan.x_row), str(second.plan.x_col) if needs_w2 else ABSENT
        record(second.site, "input", row, col)
        data, scale, *act_col = gelu_pack(h, row, col)
        act = MXBlob(data, scale, h.shape[0], h.shape[1], second.plan.x_row)
        b, *w2_col = mx_operands.pack_weight(second, needs_inner)
        y = mx_operands.product(act, b, second, x.dtype, bias=False)
        ctx.save_for_backward(*x_col, *w1_col, *act_col, *w2_col, h)
        ctx.uses, ctx.shape, ctx.dtype = uses, x.shape, x.dtype
        ctx.set_materialize_grads(False)
        return y.view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor | None) -> tuple[Tensor | None, ...]:
        if dy is None:
            return (None,) * 7
        second: LinearUse = ctx.uses[1]
        wants_x, wants_w1, wants_b1, wants_w2 = ctx.needs_input_grad[:4]
        wants_inner = wants_x or wants_w1 or wants_b1
        *saved, h = ctx.saved_tensors  # read once: activation checkpointing allows no more
        x_col, w1_col, act_col, w2_col = (tuple(saved[i : i + 2]) for i in (0, 2, 4, 6))
        plan = second.plan
        flat = dy.reshape(h.shape[0], -1)
        row = str(plan.dy_row) if wants_inner else ABSENT
        col = str(plan.dy_col) if wants_w2 else ABSENT
        packed = ops.quantize(
            flat, second.rng, row, col, plan.packer, True, second.site, "grad_output"
        )
        dx = dw1 = db1 = dw2 = None
        if wants_w2:
            dw2 = mx_operands.parameter_gradient(packed, act_col, h.shape[0], second)
        if wants_inner:
            g = mx_operands.input_gradient(packed, w2_col, h.shape[0], second, h.dtype)
            dx, dw1, db1 = _inner(ctx, g, h, x_col, w1_col, (wants_x, wants_w1, wants_b1))
        return dx, dw1, db1, dw2, None, None, None


def _inner(
    ctx: Any, g: Tensor, h: Tensor, x_col: tuple[Tensor, Tensor], w_col: tuple[Tensor, Tensor],
    wants: tuple[bool, bool, bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """dX, dW1, db1 of g = d(activation)."""
    use: LinearUse = ctx.uses[0]
    wants_x, wants_w, wants_b = wants
    # the gradient of the bias comes with either blob
    row = str(use.plan.dy_row) if wants_x or not wants_w else ABSENT
    col = str(use.plan.dy_col) if wants_w else ABSENT
    record(use.site, "grad_output", row, col)
    sums = use.bias.dtype if wants_b and use.bias is not None else None
    packed, db = gelu_grad_pack(g, h, use.rng, row, col, sums)
    dx = dw = None
    if wants_x:
        dx = mx_operands.input_gradient(packed, w_col, h.shape[0], use, ctx.dtype).view(ctx.shape)
    if wants_w:
        dw = mx_operands.parameter_gradient(packed, x_col, h.shape[0], use)
    return dx, dw, db
