# SPDX-License-Identifier: Apache-2.0
"""LN-modulate, with or without the gated residual in front, whose output only MX linears read.

The norm's kernel writes the statistics (and h), the packer computes the output from them where it
stages its tile: the blobs are those of the unfused output, which is never written. Backward is
`ln_modulate`'s, with one gradient for all readers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from mxflux.fusions import checks, gate_residual, ln_modulate, ln_plans
from mxflux.fusions.mx_operands import PackedInput
from mxflux.fusions.mx_pack import blob_problem, ln_pack, record
from mxflux.fusions.plans import Plans, signature
from mxflux.mx.plans import LinearPlan
from mxflux.mx.quantize import ABSENT

Tensor = torch.Tensor


def ln_modulate_pack(
    x: Tensor, scale: Tensor, shift: Tensor, plan: LinearPlan,
    *, columns: bool | None = None, site: Tensor | None = None, eps: float = 1e-6,
) -> PackedInput:  # fmt: skip
    """The LN-modulate of x [S,B,H], packed as `plan` packs the input of a linear.

    scale, shift: [B,H], as `ln_modulate`. columns: whether a weight gradient will follow; None:
    whether gradients are enabled. site: who is counted in a census. The blobs are bit-equal to
    `ln_modulate` and then the packer. Raises ValueError naming argument, got, expected.
    """
    checks.require(problem(x, scale, shift, plan), "ln_modulate_pack")
    row, col = specs(plan, columns)
    record(site, "input", row, col)
    stub, *blobs = _LNPack.apply(x, scale, shift, eps, row, col)
    return PackedInput(stub, tuple(blobs), row, col)


def gate_residual_ln_modulate_pack(
    x: Tensor, y: Tensor, gate: Tensor, scale: Tensor, shift: Tensor, plan: LinearPlan,
    *, columns: bool | None = None, site: Tensor | None = None, eps: float = 1e-6,
) -> tuple[Tensor, PackedInput]:  # fmt: skip
    """h = x + gate*y, and its LN-modulate packed; as `ln_modulate_pack`."""
    found = gate_residual.problem(x, y, gate, scale, shift) or problem(x, scale, shift, plan)
    checks.require(found, "gate_residual_ln_modulate_pack")
    row, col = specs(plan, columns)
    record(site, "input", row, col)
    h, stub, *blobs = _GateResidualPack.apply(x, y, gate, scale, shift, eps, row, col)
    return h, PackedInput(stub, tuple(blobs), row, col)


def problem(x: Tensor, scale: Tensor, shift: Tensor, plan: LinearPlan) -> str | None:
    """Why these arguments cannot be fused, or None; for gates."""
    if torch.compiler.is_compiling():
        return "torch.compile traces; the fused MX chains run in eager"
    if x.dtype == torch.float64 or x.numel() == 0:
        return checks.expect("x", f"{x.dtype} {list(x.shape)}", "up to fp32, not empty")
    if plan.packer == "reference":
        return checks.expect("packer", plan.packer, "auto or triton")
    found = ln_modulate.problem(x, scale, shift)
    if found is not None:
        return found
    tokens, width = x.shape[0] * x.shape[1], x.shape[2]
    return checks.first(
        blob_problem(tokens, width, str(plan.x_row)), blob_problem(width, tokens, str(plan.x_col))
    )


def specs(plan: LinearPlan, columns: bool | None) -> tuple[str, str]:
    """Spec texts of an input: its columns only where a weight gradient may follow."""
    wanted = torch.is_grad_enabled() if columns is None else columns
    return str(plan.x_row), str(plan.x_col) if wanted else ABSENT


_statistics_plans: Plans[ln_plans.ForwardPlan] = Plans()


def statistics(x: Tensor, scale: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """mean, rstd [S*B] of x, by the very reductions of `ln_modulate`."""
    plan = _statistics_plans.get((signature(x, scale), eps), _plan, x, x, scale, scale, eps, False)
    mean, rstd = torch.empty_like(plan.row_values), torch.empty_like(plan.row_values)
    plan.launch(x, x, scale, scale, scale, x, x, mean, rstd)
    return mean, rstd


def gated(x: Tensor, y: Tensor, gate: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """h = x + gate*y, mean, rstd, by the very operations of `gate_residual_ln_modulate`."""
    key = (signature(x, y, gate), eps)
    plan = _statistics_plans.get(key, _plan, x, y, gate, gate, eps, True)
    h, mean, rstd = plan.outputs(x)
    plan.launch(x, y, gate, gate, gate, h, h, mean, rstd)
    return h, mean, rstd


def _plan(
    x: Tensor, y: Tensor, gate: Tensor, scale: Tensor, eps: float, with_gate: bool
) -> ln_plans.ForwardPlan:
    op = "gate_residual_forward" if with_gate else "ln_modulate_forward"
    config = ln_plans.configuration(op, x)
    return ln_plans.forward_plan(
        x, y, gate, scale, scale, eps, config, gated=with_gate, store=False
    )


def _stub(like: Tensor) -> Tensor:
    return like.new_full((), float("nan")).expand(like.shape)


class _LNPack(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, eps: float, row: str, col: str
    ) -> tuple[Tensor, ...]:
        x, scale, shift = map(checks.unit_inner, (x, scale, shift))
        mean, rstd = statistics(x, scale, eps)
        blobs = ln_pack(x, scale, shift, mean, rstd, row, col)
        ctx.save_for_backward(x, scale, mean, rstd)
        ctx.mark_non_differentiable(*blobs)
        ctx.set_materialize_grads(False)
        return _stub(x), *blobs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, *_: Tensor) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 6
        return (*ln_modulate._backward(grad, *ctx.saved_tensors), None, None, None)


class _GateResidualPack(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, gate: Tensor, scale: Tensor, shift: Tensor,
        eps: float, row: str, col: str,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        x, y, gate, scale, shift = map(checks.unit_inner, (x, y, gate, scale, shift))
        h, mean, rstd = gated(x, y, gate, eps)
        blobs = ln_pack(h, scale, shift, mean, rstd, row, col)
        ctx.save_for_backward(h, y, gate, scale, mean, rstd)
        ctx.mark_non_differentiable(*blobs)
        ctx.set_materialize_grads(False)
        return h, _stub(h), *blobs

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, dh: Tensor | None, grad: Tensor | None, *_: Tensor
    ) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        grad, dh = gate_residual._gradients(saved[0], dh, grad)
        return (*gate_residual._backward(grad, dh, *saved), None, None, None)
