# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ARG001  (a fake implementation has the signature of its op)
"""LayerNorm without affine + AdaLN modulation, one pass each way, as both kinds of op.

`mxflux::ln_modulate` is a triton_op (a tracer fuses around it), `mxflux::ln_modulate_opaque` a
custom_op with the same launches: the same bits.
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
Gradients = tuple[Tensor, Tensor, Tensor]


def ln_modulate(
    x: Tensor, scale: Tensor, shift: Tensor, *, eps: float = 1e-6, opaque: bool = False
) -> Tensor:
    """LayerNorm(x)*(1 + scale) + shift: [S, B, H] contiguous, rounded once from fp32.

    x: [S, B, H], bf16, fp16, fp32 (fp64 computes in fp64), any strides (an inner stride other than
    1 is copied first). scale, shift: [B, H], both x's dtype or both fp32, any row stride: chunks of
    one projection are read in place. H up to 8192. opaque: which op a tracer records. Raises
    ValueError naming argument, got, expected.

    Backward reads the gradient and x once; dscale and dshift are sums over S in a fixed order.
    """
    if dispatched(x, scale, shift):
        op = torch.ops.mxflux.ln_modulate_opaque if opaque else torch.ops.mxflux.ln_modulate
        return op(x, scale, shift, eps)[0]
    if differentiable(x, scale, shift):
        return _record(x, scale, shift, eps)
    return _forward(x, scale, shift, eps)[0]


def _why_not(x: Tensor, scale: Tensor, shift: Tensor) -> str | None:
    """Why the op cannot take these arguments, or None; for gates."""
    return checks.first(_problem(x, scale, shift), checks.runnable("x", x))


problem = remembered(_why_not)


def _problem(x: Tensor, scale: Tensor, shift: Tensor) -> str | None:
    found = hidden_problem("x", x)
    return found or modulation_problem(("scale", "shift"), (scale, shift), x)


_forward_plans: Plans[ForwardPlan] = Plans()
_backward_plans: Plans[BackwardPlan] = Plans()


def _forward(
    x: Tensor, scale: Tensor, shift: Tensor, eps: float, *, traced: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    if traced:
        plan = _plan_forward(x, scale, shift, eps)
    else:
        key = (signature(x, scale, shift), eps)
        plan = _forward_plans.get(key, _plan_forward, x, scale, shift, eps)
    if plan is COPY:
        return _forward(*map(checks.unit_inner, (x, scale, shift)), eps, traced=traced)
    out, mean, rstd = plan.outputs(x, traced)
    # y, gate and h belong to the gated residual; their slots repeat tensors of the same dtypes
    plan.launch.run(traced, x, x, scale, scale, shift, out, out, mean, rstd)
    return out, mean, rstd


def _plan_forward(x: Tensor, scale: Tensor, shift: Tensor, eps: float) -> ForwardPlan:
    checks.require(_why_not(x, scale, shift), "ln_modulate")
    if not checks.all_unit_inner(x, scale, shift):
        return COPY
    config = configuration("ln_modulate_forward", x)
    return forward_plan(x, x, scale, scale, shift, eps, config, gated=False)


def _backward(
    grad: Tensor, x: Tensor, scale: Tensor, mean: Tensor, rstd: Tensor, *, traced: bool = False
) -> Gradients:
    if traced:
        plan = _plan_backward(grad, x, scale)
    else:
        plan = _backward_plans.get(signature(grad, x, scale), _plan_backward, grad, x, scale)
    if plan is COPY:
        return _backward(*map(checks.unit_inner, (grad, x, scale)), mean, rstd, traced=traced)
    dx = x.new_empty_strided(*plan.layout)
    partial = x.new_empty_strided(*plan.partial_layout, dtype=plan.acc)
    dscale = scale.new_empty(plan.shape[1:])
    dshift = torch.empty_like(dscale)
    plan.launch.run(traced, grad, grad, x, x, scale, scale, mean, rstd, dx, dx, partial)
    plan.reduce.run(traced, partial, dscale, dshift, dshift)
    return dx, dscale, dshift


def _plan_backward(grad: Tensor, x: Tensor, scale: Tensor) -> BackwardPlan:
    found = _why_not(x, scale, scale) or like_problem("grad", grad, x)
    checks.require(found, "ln_modulate backward")
    if not checks.all_unit_inner(grad, x, scale):
        return COPY
    config = configuration("ln_modulate_backward", x)
    arch = tables.architecture(x.device)
    return backward_plan((grad, grad), x, x, scale, scale, config, arch, gated=False)


class _LNModulate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, eps: float) -> Tensor:
        out, mean, rstd = _forward(x, scale, shift, eps)
        ctx.save_for_backward(x, scale, mean, rstd)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (*_backward(grad, *ctx.saved_tensors), None)


_record = recorder(_LNModulate)


FORWARD_SCHEMA = "(Tensor x, Tensor scale, Tensor shift, float eps) -> (Tensor, Tensor, Tensor)"
BACKWARD_SCHEMA = (
    "(Tensor grad, Tensor x, Tensor scale, Tensor mean, Tensor rstd) -> (Tensor, Tensor, Tensor)"
)

_library = torch.library
_op = _library.triton_op(
    "mxflux::ln_modulate",
    traceable(_forward, ln_modulate_forward_kernel),
    mutates_args=(),
    schema=FORWARD_SCHEMA,
)
_opaque = _library.custom_op(
    "mxflux::ln_modulate_opaque", _forward, mutates_args=(), schema=FORWARD_SCHEMA
)
_backward_op = _library.triton_op(
    "mxflux::ln_modulate_backward",
    traceable(_backward, ln_modulate_backward_kernel),
    mutates_args=(),
    schema=BACKWARD_SCHEMA,
)
_backward_opaque = _library.custom_op(
    "mxflux::ln_modulate_opaque_backward", _backward, mutates_args=(), schema=BACKWARD_SCHEMA
)


@_opaque.register_fake
def _forward_fake(x: Tensor, scale: Tensor, shift: Tensor, eps: float) -> Gradients:
    checks.require(_problem(x, scale, shift), "ln_modulate")
    mean = x.new_empty(x.shape[0] * x.shape[1], dtype=accumulator(x))
    return x.new_empty(x.shape), mean, torch.empty_like(mean)


@_backward_opaque.register_fake
def _backward_fake(grad: Tensor, x: Tensor, scale: Tensor, mean: Tensor, rstd: Tensor) -> Gradients:
    dscale = scale.new_empty(x.shape[1:])
    return x.new_empty(x.shape), dscale, torch.empty_like(dscale)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:2], *output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _backward_of(name: str) -> Any:
    def backward(ctx: Any, grad: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return None, None, None, None
        return (*getattr(torch.ops.mxflux, name)(grad, *ctx.saved_tensors), None)

    return backward


_op.register_autograd(_backward_of("ln_modulate_backward"), setup_context=_setup_context)
_opaque.register_autograd(_backward_of("ln_modulate_opaque_backward"), setup_context=_setup_context)
