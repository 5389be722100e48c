# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ARG001  (a fake implementation has the signature of its op)
"""QK RMSNorm + interleaved RoPE on the packed QKV: one kernel a direction, no copy, no concat.

Opaque to tracers on purpose (custom_op, direct launch): backward writes three columns of one
buffer, and the functionalization of such a write reads past the end of realized views (pytorch
#161115, #192219).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from mxflux.fusions import checks, tables
from mxflux.fusions.kernels.norm_rope import qkv_backward_kernel, qkv_forward_kernel
from mxflux.fusions.launch import Launch
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


def norm_rope_qkv(
    mixed: Tensor, q_weight: Tensor, k_weight: Tensor, table: RopeTable, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v [S, B, heads, D], contiguous: q and k RMS-normalized and rotated, v copied bit for
    bit.

    mixed: [S, B, heads, 3*D], per head q, k, v; bf16, fp16, fp32 (fp64 computes in fp64); any
    strides (an inner stride other than 1 is copied first). q_weight, k_weight: [D], both in mixed's
    dtype or both fp32. table: of S positions, one for all samples or one a sample. D: a multiple of
    16 up to 256. All arithmetic is fp32 and each output is rounded once. Raises ValueError naming
    argument, got, expected.

    Backward returns d(mixed) in mixed's layout and both weight gradients, summed in a fixed order.
    """
    cos_sin = table.cos_sin
    if dispatched(mixed, q_weight, k_weight, cos_sin):
        return torch.ops.mxflux.norm_rope_qkv(mixed, q_weight, k_weight, cos_sin, eps)[:3]
    if differentiable(mixed, q_weight, k_weight):
        return _record(mixed, q_weight, k_weight, cos_sin, eps)
    return _forward(mixed, q_weight, k_weight, cos_sin, eps)[:3]


def _why_not(mixed: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor) -> str | None:
    """Why the op cannot take these arguments, or None; for gates."""
    return checks.first(
        _problem(mixed, q_weight, k_weight, cos_sin),
        checks.runnable("mixed", mixed),
    )


problem = remembered(_why_not)


def _problem(mixed: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor) -> str | None:
    if mixed.dim() != 4 or mixed.shape[-1] % 3:
        return checks.expect("mixed shape", list(mixed.shape), "[S, B, heads, 3*D]")
    dim = mixed.shape[-1] // 3
    return checks.first(
        checks.floating("mixed", mixed),
        checks.head_dim("mixed", dim),
        weight_problem("q_weight", q_weight, mixed, dim),
        weight_problem("k_weight", k_weight, mixed, dim),
        checks.same_dtype("k_weight", k_weight, "q_weight", q_weight),
        table_problem(cos_sin, mixed, dim),
    )


_forward_plans: Plans[ForwardPlan] = Plans()
_backward_plans: Plans[BackwardPlan] = Plans()


def _forward(
    mixed: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    key = (signature(mixed, q_weight, k_weight, cos_sin), eps)
    plan = _forward_plans.get(key, _plan_forward, mixed, q_weight, k_weight, cos_sin, eps)
    if plan is COPY:
        return _forward(checks.unit_inner(mixed), q_weight, k_weight, cos_sin, eps)
    q = mixed.new_empty_strided(*plan.layout)
    k = torch.empty_like(q)
    v = torch.empty_like(q)
    rstd = mixed.new_empty_strided(*plan.rstd_layout, dtype=plan.acc)
    plan.launch(mixed, q_weight, k_weight, cos_sin, q, k, v, rstd)
    return q, k, v, rstd


def _plan_forward(
    mixed: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor, eps: float
) -> ForwardPlan:
    checks.require(_why_not(mixed, q_weight, k_weight, cos_sin), "norm_rope_qkv")
    if not checks.all_unit_inner(mixed):
        return COPY
    geo = geometry(mixed.shape, mixed.shape[3] // 3, cos_sin)
    config = configuration(mixed, "qkv_forward", geo)
    plan = forward_plan(mixed, cos_sin, eps, config)
    grid = plan.launch.grid[0]
    checks.require(checks.programs("mixed", grid, config["num_warps"]), "norm_rope_qkv")
    return plan


def forward_plan(mixed: Tensor, cos_sin: Tensor, eps: float, config: dict[str, int]) -> ForwardPlan:
    """Launch(mixed, q_weight, k_weight, cos_sin, q, k, v, rstd) in one configuration."""
    geo = geometry(mixed.shape, mixed.shape[3] // 3, cos_sin)
    block = geo.block(config)
    tiles = geo.tiles(block)
    scalars = (
        *mixed.stride()[:3], *cos_sin.stride()[:2],
        geo.batch, geo.heads, geo.group_rows, tiles, geo.rows,
    )  # fmt: skip
    fixed = constexprs(geo, block, mixed, EPS=eps)
    launch = Launch(qkv_forward_kernel, geo.groups * tiles, scalars, fixed, config["num_warps"])
    shape = (*mixed.shape[:3], geo.dim)
    return ForwardPlan(shape, (2, geo.rows), accumulator(mixed), launch)


def _backward(
    dq: Tensor, dk: Tensor, dv: Tensor, mixed: Tensor,
    q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor, rstd: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    args = (dq, dk, dv, mixed, q_weight, k_weight, cos_sin)
    plan = _backward_plans.get(signature(*args), _plan_backward, *args)
    if plan is COPY:
        return _backward(*map(checks.unit_inner, args[:4]), *args[4:], rstd)
    dmixed = mixed.new_empty_strided(*plan.layout)
    partial = mixed.new_empty_strided(*plan.partial_layout, dtype=plan.acc)
    dq_weight = torch.empty_like(q_weight)
    dk_weight = torch.empty_like(k_weight)
    plan.launch(*args, rstd, dmixed, partial)
    plan.reduce(partial, dq_weight, dk_weight, dk_weight)
    return dmixed, dq_weight, dk_weight


def _plan_backward(
    dq: Tensor, dk: Tensor, dv: Tensor, mixed: Tensor,
    q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor,
) -> BackwardPlan:  # fmt: skip
    sizes = [*mixed.shape[:3], mixed.shape[3] // 3]
    found = checks.first(
        _why_not(mixed, q_weight, k_weight, cos_sin),
        *(
            gradient_problem(name, grad, mixed, sizes)
            for name, grad in (("dq", dq), ("dk", dk), ("dv", dv))
        ),
    )
    checks.require(found, "norm_rope_qkv backward")
    if not checks.all_unit_inner(dq, dk, dv, mixed):
        return COPY
    geo = geometry(mixed.shape, sizes[3], cos_sin)
    config = configuration(mixed, "qkv_backward", geo)
    arch = tables.architecture(mixed.device)
    return backward_plan((dq, dk, dv), mixed, cos_sin, config, arch)


def backward_plan(
    grads: tuple[Tensor, Tensor, Tensor], mixed: Tensor, cos_sin: Tensor,
    config: dict[str, int], arch: str,
) -> BackwardPlan:  # fmt: skip
    """Launch(dq, dk, dv, mixed, q_weight, k_weight, cos_sin, rstd, dmixed, partial) and the sum."""
    geo = geometry(mixed.shape, mixed.shape[3] // 3, cos_sin)
    block = geo.block(config)
    tiles = geo.tiles(block)
    total = geo.groups * tiles
    programs = min(config["programs"], total)
    scalars = (
        *(stride for tensor in (*grads, mixed) for stride in tensor.stride()[:3]),
        *cos_sin.stride()[:2],
        geo.batch, geo.heads, geo.group_rows, tiles, total, geo.rows, programs,
    )  # fmt: skip
    dependent = tables.dependent_launches(arch)
    depth = stages(config, geo, block, mixed, 5)
    fixed = constexprs(geo, block, mixed, STAGES=depth, DEPENDENT=dependent)
    launch = Launch(qkv_backward_kernel, programs, scalars, fixed, config["num_warps"])
    reduce = reduction(arch, 2, programs, geo.dim, fp64=fixed["FP64"])
    partial = (2, programs, geo.dim)
    return BackwardPlan(tuple(mixed.shape), partial, accumulator(mixed), launch, reduce)


def _gradients(grads: tuple[Tensor | None, ...], mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Zeros for outputs that nothing used: one row, seen with stride 0 everywhere else."""
    sizes = (*mixed.shape[:3], mixed.shape[3] // 3)
    dq, dk, dv = (
        mixed.new_zeros(sizes[3]).expand(sizes) if grad is None else grad for grad in grads[:3]
    )
    return dq, dk, dv


class _NormRopeQKV(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mixed: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, rstd = _forward(mixed, q_weight, k_weight, cos_sin, eps)
        ctx.save_for_backward(mixed, q_weight, k_weight, cos_sin, rstd)
        ctx.set_materialize_grads(False)
        return q, k, v

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        mixed, q_weight, k_weight, cos_sin, rstd = ctx.saved_tensors
        dq, dk, dv = _gradients(grads, mixed)
        return (*_backward(dq, dk, dv, mixed, q_weight, k_weight, cos_sin, rstd), None, None)


_record = recorder(_NormRopeQKV)

_op = torch.library.custom_op(
    "mxflux::norm_rope_qkv",
    _forward,
    mutates_args=(),
    schema="(Tensor mixed, Tensor q_weight, Tensor k_weight, Tensor cos_sin, float eps)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
_backward_op = torch.library.custom_op(
    "mxflux::norm_rope_qkv_backward",
    _backward,
    mutates_args=(),
    schema="(Tensor dq, Tensor dk, Tensor dv, Tensor mixed, Tensor q_weight, Tensor k_weight,"
    " Tensor cos_sin, Tensor rstd) -> (Tensor, Tensor, Tensor)",
)


@_op.register_fake
def _forward_fake(
    mixed: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    checks.require(_problem(mixed, q_weight, k_weight, cos_sin), "norm_rope_qkv")
    q = mixed.new_empty((*mixed.shape[:3], mixed.shape[3] // 3))
    rows = mixed.shape[0] * mixed.shape[1] * mixed.shape[2]
    rstd = mixed.new_empty((2, rows), dtype=accumulator(mixed))
    return q, torch.empty_like(q), torch.empty_like(q), rstd


@_backward_op.register_fake
def _backward_fake(
    dq: Tensor, dk: Tensor, dv: Tensor, mixed: Tensor,
    q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor, rstd: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return mixed.new_empty(mixed.shape), torch.empty_like(q_weight), torch.empty_like(k_weight)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:4], output[3])
    ctx.mark_non_differentiable(output[3])
    ctx.set_materialize_grads(False)


def _op_backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    mixed, q_weight, k_weight, cos_sin, rstd = ctx.saved_tensors
    dq, dk, dv = _gradients(grads, mixed)
    backward = torch.ops.mxflux.norm_rope_qkv_backward
    return (*backward(dq, dk, dv, mixed, q_weight, k_weight, cos_sin, rstd), None, None)


_op.register_autograd(_op_backward, setup_context=_setup_context)
