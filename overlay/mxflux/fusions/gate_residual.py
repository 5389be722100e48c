# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ARG001  (a fake implementation has the signature of its op)
"""Gated residual + the LN-modulate after it in one pass: h = x + gate*y, LN-modulate(h).

The residual stream makes one round trip through memory instead of two. As both kinds of op, like
ln_modulate.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from mxflux.fusions import checks, tables
from mxflux.fusions.kernels.ln_modulate import (
    ln_modulate_backward_kernel,
    ln_modulate_forward_kernel,
)
from mxflux.fusions.launch import traceable
from mxflux.fusions.ln_plans import (
    ForwardPlan,
    accumulator,
    backward_plan,
    configuration,
    forward_plan,
    hidden_problem,
    like_problem,
    modulation_problem,
)
from mxflux.fusions.plans import (
    COPY,
    BackwardPlan,
    Plans,
    differentiable,
    dispatched,
    recorder,
    remembered,
    signature,
)

Tensor = torch.Tensor
Tensors4 = tuple[Tensor, Tensor, Tensor, Tensor]
Tensors5 = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def gate_residual_ln_modulate(
    x: Tensor, y: Tensor, gate: Tensor, scale: Tensor, shift: Tensor,
    *, eps: float = 1e-6, opaque: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(h, out): h = x + gate*y, out = LayerNorm(h)*(1 + scale) + shift; [S, B, H] contiguous each.

    x, y: [S, B, H] of one dtype (bf16, fp16, fp32; fp64 computes in fp64). gate, scale, shift: [B,
    H] of one dtype, x's or fp32. Strides, H and errors as in ln_modulate. h is rounded once and the
    norm reads the rounded value, so out has the very bits of ln_modulate(h, scale, shift).

    Backward reads d(out), d(h), h and y once and writes dx and dy; dgate, dscale and dshift are
    sums over S in a fixed order.
    """
    tensors = (x, y, gate, scale, shift)
    if dispatched(*tensors):
        ops = torch.ops.mxflux
        op = ops.gate_residual_ln_modulate_opaque if opaque else ops.gate_residual_ln_modulate
        return op(*tensors, eps)[:2]
    if differentiable(*tensors):
        return _record(*tensors, eps)
    return _forward(*tensors, eps)[:2]


def _why_not(x: Tensor, y: Tensor, gate: Tensor, scale: Tensor, shift: Tensor) -> str | None:
    """Why the op cannot take these arguments, or None; for gates."""
    return checks.first(_problem(x, y, gate, scale, shift), checks.runnable("x", x))


problem = remembered(_why_not)


def _problem(x: Tensor, y: Tensor, gate: Tensor, scale: Tensor, shift: Tensor) -> str | None:
    names = ("gate", "scale", "shift")
    return (
        hidden_problem("x", x)
        or like_problem("y", y, x)
        or modulation_problem(names, (gate, scale, shift), x)
    )


_forward_plans: Plans[ForwardPlan] = Plans()
_backward_plans: Plans[BackwardPlan] = Plans()


def _forward(
    x: Tensor, y: Tensor, gate: Tensor, scale: Tensor, shift: Tensor, eps: float,
    *, traced: bool = False,
) -> Tensors4:  # fmt: skip
    args = (x, y, gate, scale, shift)
    if traced:
        plan = _plan_forward(*args, eps)
    else:
        plan = _forward_plans.get((signature(*args), eps), _plan_forward, *args, eps)
    if plan is COPY:
        return _forward(*map(checks.unit_inner, args), eps, traced=traced)
    h, mean, rstd = plan.outputs(x, traced)
    out = torch.empty_like(h)
    plan.launch.run(traced, *args, h, out, mean, rstd)
    return h, out, mean, rstd


def _plan_forward(
    x: Tensor, y: Tensor, gate: Tensor, scale: Tensor, shift: Tensor, eps: float
) -> ForwardPlan:
    checks.require(_why_not(x, y, gate, scale, shift), "gate_residual_ln_modulate")
    if not checks.all_unit_inner(x, y, gate, scale, shift):
        return COPY
    config = configuration("gate_residual_forward", x)
    return forward_plan(x, y, gate, scale, shift, eps, config, gated=True)


def _backward(
    grad: Tensor, dh: Tensor, h: Tensor, y: Tensor,
    gate: Tensor, scale: Tensor, mean: Tensor, rstd: Tensor, *, traced: bool = False,
) -> Tensors5:  # fmt: skip
    args = (grad, dh, h, y, gate, scale)
    if traced:
        plan = _plan_backward(*args)
    else:
        plan = _backward_plans.get(signature(*args), _plan_backward, *args)
    if plan is COPY:
        return _backward(*map(checks.unit_inner, args), mean, rstd, traced=traced)
    dx = h.new_empty_strided(*plan.layout)
    dy = torch.empty_like(dx)
    partial = h.new_empty_strided(*plan.partial_layout, dtype=plan.acc)
    dgate = gate.new_empty(plan.shape[1:])
    dscale = torch.empty_like(dgate)
    dshift = torch.empty_like(dgate)
    plan.launch.run(traced, *args, mean, rstd, dx, dy, partial)
    plan.reduce.run(traced, partial, dscale, dshift, dgate)
    return dx, dy, dgate, dscale, dshift


def _plan_backward(
    grad: Tensor, dh: Tensor, h: Tensor, y: Tensor, gate: Tensor, scale: Tensor
) -> BackwardPlan:
    found = (
        _why_not(h, y, gate, scale, scale)
        or like_problem("grad", grad, h)
        or like_problem("dh", dh, h)
    )
    checks.require(found, "gate_residual_ln_modulate backward")
    if not checks.all_unit_inner(grad, dh, h, y, gate, scale):
        return COPY
    config = configuration("gate_residual_backward", h)
    arch = tables.architecture(h.device)
    return backward_plan((grad, dh), h, y, gate, scale, config, arch, gated=True)


def _gradients(h: Tensor, dh: Tensor | None, grad: Tensor | None) -> tuple[Tensor, Tensor]:
    """(d(out), d(h)), zeros with stride 0 for an output that nothing used."""
    zero = h.new_zeros(h.shape[2]).expand(h.shape)
    return (zero if grad is None else grad), (zero if dh is None else dh)


class _GateResidual(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, gate: Tensor, scale: Tensor, shift: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        h, out, mean, rstd = _forward(x, y, gate, scale, shift, eps)
        ctx.save_for_backward(h, y, gate, scale, mean, rstd)
        ctx.set_materialize_grads(False)
        return h, out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor | None, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        h = ctx.saved_tensors[0]
        if dh is None or grad is None:
            grad, dh = _gradients(h, dh, grad)
        return (*_backward(grad, dh, *ctx.saved_tensors), None)


_record = recorder(_GateResidual)


FORWARD_SCHEMA = (
    "(Tensor x, Tensor y, Tensor gate, Tensor scale, Tensor shift, float eps)"
    " -> (Tensor, Tensor, Tensor, Tensor)"
)
BACKWARD_SCHEMA = (
    "(Tensor grad, Tensor dh, Tensor h, Tensor y, Tensor gate, Tensor scale,"
    " Tensor mean, Tensor rstd) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
_NAME = "mxflux::gate_residual_ln_modulate"
_library = torch.library
_op = _library.triton_op(
    _NAME, traceable(_forward, ln_modulate_forward_kernel), mutates_args=(), schema=FORWARD_SCHEMA
)
_opaque = _library.custom_op(f"{_NAME}_opaque", _forward, mutates_args=(), schema=FORWARD_SCHEMA)
_backward_op = _library.triton_op(
    f"{_NAME}_backward",
    traceable(_backward, ln_modulate_backward_kernel),
    mutates_args=(),
    schema=BACKWARD_SCHEMA,
)
_backward_opaque = _library.custom_op(
    f"{_NAME}_opaque_backward", _backward, mutates_args=(), schema=BACKWARD_SCHEMA
)


@_opaque.register_fake
def _forward_fake(
    x: Tensor, y: Tensor, gate: Tensor, scale: Tensor, shift: Tensor, eps: float
) -> Tensors4:
    checks.require(_problem(x, y, gate, scale, shift), "gate_residual_ln_modulate")
    h = x.new_empty(x.shape)
    mean = x.new_empty(x.shape[0] * x.shape[1], dtype=accumulator(x))
    return h, torch.empty_like(h), mean, torch.empty_like(mean)


@_backward_opaque.register_fake
def _backward_fake(
    grad: Tensor, dh: Tensor, h: Tensor, y: Tensor,
    gate: Tensor, scale: Tensor, mean: Tensor, rstd: Tensor,
) -> Tensors5:  # fmt: skip
    dx = h.new_empty(h.shape)
    dgate = gate.new_empty(h.shape[1:])
    return dx, torch.empty_like(dx), dgate, torch.empty_like(dgate), torch.empty_like(dgate)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, y, gate, scale = inputs[:4]
    h, _, mean, rstd = output
    ctx.save_for_backward(h, y, gate, scale, mean, rstd)
    ctx.mark_non_differentiable(mean, rstd)
    ctx.set_materialize_grads(False)


def _backward_of(name: str) -> Any:
    def backward(
        ctx: Any, dh: Tensor | None, grad: Tensor | None, *_: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        grad, dh = _gradients(ctx.saved_tensors[0], dh, grad)
        return (*getattr(torch.ops.mxflux, name)(grad, dh, *ctx.saved_tensors), None)

    return backward


_op.register_autograd(
    _backward_of("gate_residual_ln_modulate_backward"), setup_context=_setup_context
)
_opaque.register_autograd(
    _backward_of("gate_residual_ln_modulate_opaque_backward"), setup_context=_setup_context
)
