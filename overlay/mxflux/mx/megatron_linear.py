# SPDX-License-Identifier: Apache-2.0
"""Megatron's ColumnParallelLinear and RowParallelLinear of the local spec, in an MX format.

    from mxflux.flux.layer_specs import set_local_linear_provider
    set_local_linear_provider(local_linear_provider(backend="emulated"))

Only the GEMM is replaced (`_forward_impl`): parameters, checkpoints and biases stay Megatron's.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear

from mxflux.mx.backends import backend_named
from mxflux.mx.errors import MXUnavailableError, MXValueError
from mxflux.mx.linear import mx_linear
from mxflux.mx.plans import LinearPlan, mxfp4, mxfp6, mxfp8
from mxflux.mx.quantize import rng_state

if TYPE_CHECKING:
    from collections.abc import Callable

#: Config field -> the only value this linear can honour, and why.
REQUIRED = {
    "tensor_model_parallel_size": (1, "its packed operands are not split across ranks"),
    "sequence_parallel": (False, "its input is not gathered from other ranks"),
    "expert_model_parallel_size": (1, "expert linears are not served"),
    "defer_embedding_wgrad_compute": (False, "its weight gradient is computed in backward"),
    "delay_wgrad_compute": (False, "its weight gradient is computed in backward"),
}


def check_config(config: Any, plan: LinearPlan) -> None:
    """Raise MXValueError naming every config field this linear cannot honour."""
    wrong = [
        f"{name}={getattr(config, name)!r} must be {value!r}: {why}"
        for name, (value, why) in REQUIRED.items()
        if getattr(config, name, value) != value
    ]
    if wrong:
        raise MXValueError(f"local {plan.name} linear: " + "; ".join(wrong))


class _MXForward(torch.nn.Module):
    """Mixed in before a Megatron linear; `plan` is set by `linear_types`."""

    plan: LinearPlan
    weight: torch.Tensor
    rng: torch.Tensor

    def __init__(self, *args: Any, config: Any, is_expert: bool = False, **kwargs: Any) -> None:
        check_config(config, self.plan)
        if is_expert:
            raise MXValueError(f"local {self.plan.name} linear: expert linears are not served")
        super().__init__(*args, config=config, is_expert=is_expert, **kwargs)
        why = backend_named(self.plan.backend).missing(self.weight.device)
        if why is not None:
            raise MXUnavailableError(
                f"local {self.plan.name} linear: GEMM backend {self.plan.backend!r}: {why}; "
                "`python -m mxflux.mx.doctor` lists what runs here"
            )
        self.register_buffer("rng", rng_state(0, device=self.weight.device), persistent=False)
        self.mx_site: torch.Tensor | None = None

    def _forward_impl(
        self,
        input: torch.Tensor,  # noqa: A002 - Megatron's name
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        gradient_accumulation_fusion: bool = False,
        **parallel: Any,  # noqa: ARG002 - what check_config has pinned
    ) -> torch.Tensor:
        rng = self.rng
        if self.plan.stochastic and torch.is_grad_enabled():
            rng = rng.clone()
            self.rng[1] += 1
        fused = gradient_accumulation_fusion and weight.requires_grad
        return mx_linear(
            input,
            weight,
            bias,
            self.plan,
            rng=rng,
            site=self.mx_site,
            main_grad=weight.main_grad if fused else None,
        )


@functools.cache
def linear_types(plan: LinearPlan) -> tuple[type, type]:
    """Column and row linear classes bound to `plan`; one pair a plan, so specs compare equal."""
    prefix = plan.name.upper()
    return tuple(
        type(f"{prefix}{base.__name__}", (_MXForward, base), {"plan": plan})
        for base in (ColumnParallelLinear, RowParallelLinear)
    )  # type: ignore[return-value]


def plan_for(config: Any, backend: str, **options: Any) -> LinearPlan:
    """The plan a config's fp4, fp6 or fp8 field asks for; MXValueError when there is none."""
    asked = {n: v for n in ("fp8", "fp4", "fp6") if (v := getattr(config, n, None))}
    if len(asked) != 1:
        raise MXValueError(f"local MX linear: one of fp8, fp4, fp6 must be set, got {asked}")
    (name, value), *_ = asked.items()
    recipe = str(getattr(config, f"{name}_recipe", None) or "")
    if name == "fp6":
        return mxfp6(backend, element=value, **options)
    if name == "fp4" and value == "e2m1" and recipe.endswith("mxfp4"):
        return mxfp4(backend, **options)
    if name == "fp8" and value == "e4m3" and recipe.endswith("mxfp8"):
        return mxfp8(backend, **options)
    raise MXValueError(
        f"local MX linear: {name}={value!r} with {name}_recipe={recipe!r} is not served; "
        "valid: fp4='e2m1' with mxfp4, fp6='e2m3' or 'e3m2', fp8='e4m3' with mxfp8"
    )


def local_linear_provider(backend: str, **options: Any) -> Callable[[Any], tuple[type, type]]:
    """config -> (column, row) linear classes, for a layer spec.

    backend: of every GEMM, see `mxflux.mx.backends`. options: of `mxfp4`, `mxfp6` or `mxfp8`.
    """

    def provider(config: Any) -> tuple[type, type]:
        plan = plan_for(config, backend, **options)
        check_config(config, plan)
        return linear_types(plan)

    return provider
