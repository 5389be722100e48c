# SPDX-License-Identifier: Apache-2.0
"""mx_linear: Y = X W^T + b with every GEMM in an MX format, forward and backward; MXLinear."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from mxflux.mx import ops
from mxflux.mx.blob import MXBlob
from mxflux.mx.errors import MissingOperandError, MXValueError
from mxflux.mx.gemm import gemm
from mxflux.mx.high import high_matmul
from mxflux.mx.quantize import ABSENT, rng_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from mxflux.mx.plans import LinearPlan

Tensor = torch.Tensor


class _MXLinearFunction(torch.autograd.Function):
    """Outputs Y and, for backward, the column blobs of X and W as uint8 (empty when not packed)."""

    @staticmethod
    def forward(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        rng: Tensor | None,  # noqa: ARG004 - backward's
        site: Tensor | None,
        main_grad: Tensor | None,  # noqa: ARG004 - backward's
        plan: LinearPlan,
        needs: tuple[bool, bool],
    ) -> tuple[Tensor, ...]:
        needs_dgrad, needs_wgrad = (n and plan.backward == "mx" for n in needs)
        x_col = str(plan.x_col) if needs_wgrad else ABSENT
        w_col = str(plan.w_col) if needs_dgrad else ABSENT
        packed_x = ops.quantize(x, None, str(plan.x_row), x_col, plan.packer, True, site, "input")
        packed_w = ops.quantize(
            weight, None, str(plan.w_row), w_col, plan.packer, True, site, "weight"
        )
        a = MXBlob(*packed_x[:2], x.shape[0], x.shape[1], plan.x_row)
        b = MXBlob(*packed_w[:2], weight.shape[0], weight.shape[1], plan.w_row)
        y = gemm(a, b, backend=plan.backend, out_dtype=x.dtype, bias=bias, site=site)
        return y, *packed_x[2:], *packed_w[2:]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, weight, bias, rng, site, main_grad, plan, needs = inputs
        blobs = output[1:]
        ctx.mark_non_differentiable(*blobs)
        ctx.set_materialize_grads(False)
        keep_high = plan.backward != "mx" and any(needs)
        high = (x, weight) if keep_high else (None, None)
        ctx.save_for_backward(*blobs, *high, rng, site)
        ctx.plan, ctx.needs = plan, needs
        ctx.shapes = tuple(x.shape), tuple(weight.shape)
        ctx.dtypes = x.dtype, weight.dtype, None if bias is None else bias.dtype
        ctx.main_grad, ctx.weight = main_grad, weight if main_grad is not None else None

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None, *_: Tensor) -> tuple[Tensor | None, ...]:
        if dy is None:
            return (None,) * 8
        wants = ctx.needs_input_grad[:3]
        for want, packed, name in zip(wants, ctx.needs, ("input", "weight"), strict=False):
            if want and not packed:
                raise MissingOperandError(
                    f"backward of an mx_linear whose forward was told that the gradient of its "
                    f"{name} is not needed (grad_enabled=False): its column blobs were never packed"
                )
        backward = _mx_backward if ctx.plan.backward == "mx" else _high_backward
        dx, dw = backward(ctx, dy, *wants[:2])
        db = dy.float().sum(0).to(ctx.dtypes[2]) if wants[2] else None
        return dx, dw, db, None, None, None, None, None


def _mx_backward(
    ctx: Any, dy: Tensor, wants_dx: bool, wants_dw: bool
) -> tuple[Tensor | None, Tensor | None]:
    plan: LinearPlan = ctx.plan
    x_data, x_scale, w_data, w_scale, _, _, rng, site = ctx.saved_tensors
    (tokens, k), (n, _) = ctx.shapes
    dx = dw = None
    if not (wants_dx or wants_dw):
        return dx, dw
    row, col = str(plan.dy_row) if wants_dx else ABSENT, str(plan.dy_col) if wants_dw else ABSENT
    packed = ops.quantize(dy, rng, row, col, plan.packer, True, site, "grad_output")
    if wants_dx:
        a = MXBlob(packed[0], packed[1], tokens, n, plan.dy_row)
        b = MXBlob(w_data, w_scale, k, n, plan.w_col)
        dx = gemm(a, b, backend=plan.backend, out_dtype=ctx.dtypes[0], site=site, direction="dgrad")
    if wants_dw:
        a = MXBlob(packed[2], packed[3], n, tokens, plan.dy_col)
        b = MXBlob(x_data, x_scale, k, tokens, plan.x_col)
        dw = _weight_gradient(ctx, lambda **how: gemm(a, b, backend=plan.backend, **how), site)
    return dx, dw


def _weight_gradient(ctx: Any, product: Any, site: Tensor | None) -> Tensor | None:
    return weight_gradient(product, site, ctx.shapes[1], ctx.dtypes[1], ctx.weight, ctx.main_grad)


def weight_gradient(
    product: Callable[..., Tensor],
    site: Tensor | None,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    weight: Any,
    main_grad: Tensor | None,
) -> Tensor | None:
    """dW of product(site=, direction=, out_dtype= | out=, accumulate=) as a tensor of that dtype;
    or, with a main_grad, added to it, and what Megatron expects from backward in its place.

    Where the deferral of the grad buffer's zero fill has marked the main_grad stale, the first
    gradient overwrites it.
    """
    where = {"site": site, "direction": "wgrad"}
    if main_grad is None:
        return product(out_dtype=dtype, **where)
    if getattr(weight, "main_grad_is_stale", False):
        # 0 + g and not a copy: adding to zeros turns the negative zeros of g into positive ones
        torch.add(product(out_dtype=main_grad.dtype, **where), 0, out=main_grad)
        weight.main_grad_is_stale = False
    else:
        product(out=main_grad, accumulate=True, **where)
    if not hasattr(weight, "grad_added_to_main_grad"):
        return None
    # Megatron's DDP hook fires on a gradient; its value is ignored once this flag is set.
    weight.grad_added_to_main_grad = True
    # To mxflux.megatron.grad_buffer: from the next iteration on no zeros are needed here.
    weight.overwrites_stale_main_grad = True
    make = torch.zeros if getattr(weight, "zero_out_wgrad", False) else torch.empty
    return make(shape, dtype=dtype, device=main_grad.device)


def _high_backward(
    ctx: Any, dy: Tensor, wants_dx: bool, wants_dw: bool
) -> tuple[Tensor | None, Tensor | None]:
    """fp8 (one scale a tensor) or bf16 gradients from the bf16 X and W."""
    *_, x, weight, _, site = ctx.saved_tensors
    dx = dw = None
    if wants_dx:
        dx = high_matmul(dy, weight, ctx.plan.backward, site, "dgrad").to(ctx.dtypes[0])
    if wants_dw:

        def product(
            site: Tensor | None,
            direction: str,
            out_dtype: torch.dtype | None = None,
            out: Tensor | None = None,
            accumulate: bool = False,
        ) -> Tensor:
            result = high_matmul(dy.t(), x, ctx.plan.backward, site, direction)
            if out is None:
                return result.to(out_dtype)
            return out.add_(result) if accumulate else out.copy_(result)

        dw = _weight_gradient(ctx, product, site)
    return dx, dw


def mx_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    plan: LinearPlan,
    *,
    rng: Tensor | None = None,
    site: Tensor | None = None,
    main_grad: Tensor | None = None,
    grad_enabled: bool | None = None,
) -> Tensor:
    """x (.., K), weight (N, K), bias (N,) or None -> (.., N) in x's dtype.

    grad_enabled: whether a backward may follow. None samples torch.is_grad_enabled() here, outside
    the autograd Function, where it still tells training from no_grad. Without it only rows are
    packed, and a backward raises MissingOperandError. rng: `rng_state` for plans with stochastic
    gradients; the caller advances it between calls. main_grad: fp32 or bf16 (N, K), the weight
    gradient is added to it (not under torch.compile). site: for a census.
    Raises MXValueError, MXUnavailableError, MissingOperandError.
    """
    if x.shape[-1] != weight.shape[-1] or weight.dim() != 2:
        raise MXValueError(
            f"mx_linear: x is {tuple(x.shape)}, weight {tuple(weight.shape)}: "
            "weight must be (N, K) with K the last dimension of x"
        )
    if plan.stochastic and rng is None:
        raise MXValueError(f"mx_linear: plan {plan.name} rounds gradients stochastically: pass rng")
    if main_grad is not None and torch.compiler.is_compiling():
        raise MXValueError("mx_linear: main_grad accumulation does not run under torch.compile")
    grad = torch.is_grad_enabled() if grad_enabled is None else grad_enabled
    needs = (grad and x.requires_grad, grad and weight.requires_grad)
    flat = x.reshape(-1, x.shape[-1])
    y = _MXLinearFunction.apply(flat, weight, bias, rng, site, main_grad, plan, needs)[0]
    return y.reshape(*x.shape[:-1], weight.shape[0])


class MXLinear(torch.nn.Module):
    """torch.nn.Linear in an MX format.

    `mx_site` belongs to the census. The rng state is a buffer that state_dict does not hold, so
    checkpoints have the keys of torch.nn.Linear; seed: its first word.
    """

    rng: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        plan: LinearPlan,
        *,
        bias: bool = True,
        seed: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.plan = plan
        self.weight = torch.nn.Parameter(
            torch.empty(out_features, in_features, device=device, dtype=dtype)
        )
        empty = torch.empty(out_features, device=device, dtype=dtype) if bias else None
        self.bias = None if empty is None else torch.nn.Parameter(empty)
        self.register_buffer("rng", rng_state(seed, device=self.weight.device), persistent=False)
        self.mx_site: Tensor | None = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """torch.nn.Linear's initial values."""
        torch.nn.Linear.reset_parameters(self)  # type: ignore[arg-type]

    @property
    def in_features(self) -> int:
        """K."""
        return self.weight.shape[1]

    @property
    def out_features(self) -> int:
        """N."""
        return self.weight.shape[0]

    def extra_repr(self) -> str:
        """in_features, out_features, bias and the plan."""
        bias = self.bias is not None
        return f"{self.in_features}, {self.out_features}, bias={bias}, plan={self.plan.name}"

    def forward(self, x: Tensor) -> Tensor:
        """x (.., K) -> (.., N)."""
        rng = None
        if self.plan.stochastic and torch.is_grad_enabled():
            # A snapshot each call: two micro-batches in flight, or a recomputation, round apart.
            rng = self.rng.clone()
            self.rng[1] += 1
        elif self.plan.stochastic:
            rng = self.rng
        return mx_linear(x, self.weight, self.bias, self.plan, rng=rng, site=self.mx_site)
