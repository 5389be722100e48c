# SPDX-License-Identifier: Apache-2.0
"""linear_qkv -> QK-norm -> RoPE with an MX linear as one autograd Function.

Forward is the unfused path's GEMM and kernel: equal bits. Backward packs d(mixed_qkv) as it is
computed: it is never written, and both norm weights' and the bias' gradients come from that pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from mxflux.fusions import checks, mx_operands, norm_rope_qkv
from mxflux.fusions.mx_operands import Input, LinearUse, PackedInput
from mxflux.fusions.mx_pack import HEAD_DIMS, qkv_grad_pack, record
from mxflux.fusions.norm_rope_plans import table_problem, weight_problem
from mxflux.mx.quantize import ABSENT

Tensor = torch.Tensor
QKV = tuple[Tensor, Tensor, Tensor]

if TYPE_CHECKING:
    from mxflux.mx.packers import Packed


def qkv_prologue(
    x: Input, linear: Any, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor,
    *, heads: int, eps: float = 1e-6,
) -> QKV:  # fmt: skip
    """q, k, v [S,B,heads,D] of x [S,B,K]: q and k normalized and rotated, v as projected.

    linear: an MX linear (N = heads*3*D, per head q, k, v) with or without bias. q_weight, k_weight:
    [D]. cos_sin: `RopeTable.cos_sin`. Bit-identical to linear(x), then `norm_rope_qkv`.
    Raises ValueError naming argument, got, expected; MissingOperandError for a backward after a
    forward without gradients.
    """
    checks.require(problem(x, linear, q_weight, k_weight, cos_sin), "qkv_prologue")
    use = mx_operands.use_of(linear)
    grad = torch.is_grad_enabled()
    stub = x.stub if isinstance(x, PackedInput) else x
    needs = (grad and stub.requires_grad, grad and use.weight.requires_grad)
    packed = x if isinstance(x, PackedInput) else None
    tensors = (stub, use.weight, use.bias, q_weight, k_weight, cos_sin)
    q, k, v = _QKVPrologue.apply(*tensors, use, packed, heads, eps, needs)
    return q, k, v


def problem(
    x: Input, linear: Any, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor
) -> str | None:
    """Why these arguments cannot be fused, or None; for gates."""
    found = mx_operands.linear_problem("linear_qkv", linear) or mx_operands.input_problem(x, linear)
    if found is not None:
        return found
    stub, dim = (x.stub if isinstance(x, PackedInput) else x), q_weight.shape[0]
    seq, batch = stub.shape[:2]
    out, _ = linear.weight.shape
    if dim not in HEAD_DIMS or out % (3 * dim):
        return checks.expect("head dimension", f"{dim} of {out} features", f"one of {HEAD_DIMS}")
    return checks.first(
        weight_problem("q_weight", q_weight, stub, dim),
        weight_problem("k_weight", k_weight, stub, dim),
        checks.same_dtype("k_weight", k_weight, "q_weight", q_weight),
        table_problem(cos_sin, stub, dim),
        mx_operands.gradient_problem(seq * batch, linear),
    )


class _QKVPrologue(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, q_weight: Tensor,  # noqa: ARG004
        k_weight: Tensor, cos_sin: Tensor, use: LinearUse, packed: PackedInput | None,
        heads: int, eps: float, needs: tuple[bool, bool],
    ) -> QKV:  # fmt: skip
        flat = x.reshape(-1, x.shape[-1]) if packed is None else packed
        a, *x_col = mx_operands.pack_input(flat, use, needs[1])
        b, *w_col = mx_operands.pack_weight(use, needs[0])
        mixed = mx_operands.product(a, b, use, x.dtype).view(*x.shape[:2], heads, -1)
        q, k, v, rstd = norm_rope_qkv._forward(mixed, q_weight, k_weight, cos_sin, eps)
        ctx.save_for_backward(*x_col, *w_col, mixed, q_weight, k_weight, cos_sin, rstd)
        ctx.use, ctx.dtype, ctx.shape = use, x.dtype, x.shape
        ctx.set_materialize_grads(False)
        return q, k, v

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if all(grad is None for grad in grads):
            return (None,) * 11
        saved = ctx.saved_tensors  # read once: activation checkpointing allows no more
        x_col, w_col = saved[:2], saved[2:4]
        use: LinearUse = ctx.use
        wants_x, wants_w, wants_b = ctx.needs_input_grad[:3]
        blobs, dq_weight, dk_weight, db = _packed_gradient(
            ctx, saved[4:], grads, (wants_x, wants_w, wants_b)
        )
        tokens = ctx.shape[0] * ctx.shape[1]
        dx = dw = None
        if wants_x:
            dx = mx_operands.input_gradient(blobs, w_col, tokens, use, ctx.dtype).view(ctx.shape)
        if wants_w:
            dw = mx_operands.parameter_gradient(blobs, x_col, tokens, use)
        return (dx, dw, db, dq_weight, dk_weight, *(None,) * 6)


def _packed_gradient(
    ctx: Any, kept: tuple[Tensor, ...], grads: tuple[Tensor | None, ...],
    wants: tuple[bool, bool, bool],
) -> tuple[Packed, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """The blobs of d(mixed), d(q weight), d(k weight), d(bias)."""
    mixed, q_weight, k_weight, cos_sin, rstd = kept
    use: LinearUse = ctx.use
    wants_x, wants_w, wants_b = wants
    dq, dk, dv = (
        checks.unit_inner(grad.to(mixed.dtype)) for grad in norm_rope_qkv._gradients(grads, mixed)
    )
    # the gradients of norm weights and bias come with either blob
    row = str(use.plan.dy_row) if wants_x or not wants_w else ABSENT
    col = str(use.plan.dy_col) if wants_w else ABSENT
    record(use.site, "grad_output", row, col)
    sums = use.bias.dtype if wants_b and use.bias is not None else None
    return qkv_grad_pack(
        (dq, dk, dv), mixed, (q_weight, k_weight), cos_sin, rstd, use.rng, row, col, sums
    )
