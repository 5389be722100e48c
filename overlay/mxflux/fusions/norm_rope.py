# SPDX-License-Identifier: Apache-2.0
"""RMSNorm + interleaved RoPE of one tensor (q or k), as a triton_op that a tracer sees into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from mxflux.fusions import checks, tables
from mxflux.fusions.kernels.norm_rope import norm_rope_backward_kernel, norm_rope_forward_kernel
from mxflux.fusions.launch import Launch, traceable
from mxflux.fusions.norm_rope_plans import (
    ForwardPlan,
    accumulator,
    configuration,
    constexprs,
    geometry,
    gradient_problem,
    stages,
    table_problem,
    weight_problem,
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
from mxflux.fusions.reduction import reduction

if TYPE_CHECKING:
    from mxflux.fusions.rope_table import RopeTable

Tensor = torch.Tensor


def norm_rope(x: Tensor, weight: Tensor, table: RopeTable, *, eps: float = 1e-6) -> Tensor:
    """RMSNorm(x)*weight, rotated: [S, B, heads, D] contiguous, rounded once from fp32.

    x: [S, B, heads, D], bf16, fp16, fp32 (fp64 computes in fp64), any strides: a q or k slice of
    the packed projection is read in place. weight: [D], x's dtype or fp32. table: of S positions,
    one for all samples or one a sample. D: a multiple of 16 up to 256. Raises ValueError naming
    argument, got, expected.
    """
    cos_sin = table.cos_sin
    if dispatched(x, weight, cos_sin):
        return torch.ops.mxflux.norm_rope(x, weight, cos_sin, eps)[0]
    if differentiable(x, weight):
        return _record(x, weight, cos_sin, eps)
    return _forward(x, weight, cos_sin, eps)[0]


def _why_not(x: Tensor, weight: Tensor, cos_sin: Tensor) -> str | None:
    """Why the op cannot take these arguments, or None; for gates."""
    if x.dim() != 4:
        return checks.expect("x shape", list(x.shape), "[S, B, heads, D]")
    dim = x.shape[-1]
    return checks.first(
        checks.floating("x", x),
        checks.head_dim("x", dim),
        weight_problem("weight", weight, x, dim),
        table_problem(cos_sin, x, dim),
        checks.runnable("x", x),
    )


problem = remembered(_why_not)


_forward_plans: Plans[ForwardPlan] = Plans()
_backward_plans: Plans[BackwardPlan] = Plans()


def _forward(
    x: Tensor, weight: Tensor, cos_sin: Tensor, eps: float, *, traced: bool = False
) -> tuple[Tensor, Tensor]:
    args = (x, weight, cos_sin)
    if traced:
        plan = _plan_forward(*args, eps)
    else:
        plan = _forward_plans.get((signature(*args), eps), _plan_forward, *args, eps)
    if plan is COPY:
        return _forward(checks.unit_inner(x), weight, cos_sin, eps, traced=traced)
    out = x.new_empty_strided(*plan.layout)
    rstd = x.new_empty_strided(*plan.rstd_layout, dtype=plan.acc)
    plan.launch.run(traced, *args, out, rstd)
    return out, rstd


def _plan_forward(x: Tensor, weight: Tensor, cos_sin: Tensor, eps: float) -> ForwardPlan:
    checks.require(_why_not(x, weight, cos_sin), "norm_rope")
    if not checks.all_unit_inner(x):
        return COPY
    config = configuration(x, "norm_rope_forward", geometry(x.shape, x.shape[3], cos_sin))
    plan = forward_plan(x, cos_sin, eps, config)
    checks.require(checks.programs("x", plan.launch.grid[0], config["num_warps"]), "norm_rope")
    return plan


def forward_plan(x: Tensor, cos_sin: Tensor, eps: float, config: dict[str, int]) -> ForwardPlan:
    """Launch(x, weight, cos_sin, out, rstd) in one configuration."""
    geo = geometry(x.shape, x.shape[3], cos_sin)
    block = geo.block(config)
    tiles = geo.tiles(block)
    scalars = (
        *x.stride()[:3], *cos_sin.stride()[:2],
        geo.batch, geo.heads, geo.group_rows, tiles,
    )  # fmt: skip
    fixed = constexprs(geo, block, x, EPS=eps)
    grid = geo.groups * tiles
    launch = Launch(norm_rope_forward_kernel, grid, scalars, fixed, config["num_warps"])
    return ForwardPlan(tuple(x.shape), (geo.rows,), accumulator(x), launch)


def _backward(
    grad: Tensor, x: Tensor, weight: Tensor, cos_sin: Tensor, rstd: Tensor,
    *, traced: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    args = (grad, x, weight, cos_sin)
    if traced:
        plan = _plan_backward(*args)
    else:
        plan = _backward_plans.get(signature(*args), _plan_backward, *args)
    if plan is COPY:
        grad, x = map(checks.unit_inner, (grad, x))
        return _backward(grad, x, weight, cos_sin, rstd, traced=traced)
    dx = x.new_empty_strided(*plan.layout)
    partial = x.new_empty_strided(*plan.partial_layout, dtype=plan.acc)
    dweight = torch.empty_like(weight)
    plan.launch.run(traced, *args, rstd, dx, partial)
    plan.reduce.run(traced, partial, dweight, dweight, dweight)
    return dx, dweight


def _plan_backward(grad: Tensor, x: Tensor, weight: Tensor, cos_sin: Tensor) -> BackwardPlan:
    found = checks.first(
        _why_not(x, weight, cos_sin), gradient_problem("grad", grad, x, list(x.shape))
    )
    checks.require(found, "norm_rope backward")
    if not checks.all_unit_inner(grad, x):
        return COPY
    geo = geometry(x.shape, x.shape[3], cos_sin)
    config = configuration(x, "norm_rope_backward", geo)
    return backward_plan(grad, x, cos_sin, config, tables.architecture(x.device))


def backward_plan(
    grad: Tensor, x: Tensor, cos_sin: Tensor, config: dict[str, int], arch: str
) -> BackwardPlan:
    """Launch(grad, x, weight, cos_sin, rstd, dx, partial) in one configuration, and the sum."""
    geo = geometry(x.shape, x.shape[3], cos_sin)
    block = geo.block(config)
    tiles = geo.tiles(block)
    total = geo.groups * tiles
    programs = min(config["programs"], total)
    scalars = (
        *grad.stride()[:3], *x.stride()[:3], *cos_sin.stride()[:2],
        geo.batch, geo.heads, geo.group_rows, tiles, total, programs,
    )  # fmt: skip
    dependent = tables.dependent_launches(arch)
    fixed = constexprs(geo, block, x, STAGES=stages(config, geo, block, x, 2), DEPENDENT=dependent)
    launch = Launch(norm_rope_backward_kernel, programs, scalars, fixed, config["num_warps"])
    reduce = reduction(arch, 1, programs, geo.dim, fp64=fixed["FP64"])
    return BackwardPlan(tuple(x.shape), (1, programs, geo.dim), accumulator(x), launch, reduce)


class _NormRope(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, cos_sin: Tensor, eps: float) -> Tensor:
        out, rstd = _forward(x, weight, cos_sin, eps)
        ctx.save_for_backward(x, weight, cos_sin, rstd)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (*_backward(grad, *ctx.saved_tensors), None, None)


_record = recorder(_NormRope)

_op = torch.library.triton_op(
    "mxflux::norm_rope",
    traceable(_forward, norm_rope_forward_kernel),
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor cos_sin, float eps) -> (Tensor, Tensor)",
)
_backward_op = torch.library.triton_op(
    "mxflux::norm_rope_backward",
    traceable(_backward, norm_rope_backward_kernel),
    mutates_args=(),
    schema="(Tensor grad, Tensor x, Tensor weight, Tensor cos_sin, Tensor rstd)"
    " -> (Tensor, Tensor)",
)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:3], output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _op_backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return None, None, None, None
    return (*torch.ops.mxflux.norm_rope_backward(grad, *ctx.saved_tensors), None, None)


_op.register_autograd(_op_backward, setup_context=_setup_context)
