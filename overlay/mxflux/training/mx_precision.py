# SPDX-License-Identifier: Apache-2.0
"""Make the MX settings of a recipe the ones that its linears use, local or TransformerEngine's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch

from mxflux.flux.layer_specs import set_local_linear_provider
from mxflux.flux.precision import set_fp6_context_builder

from .errors import SetupError

if TYPE_CHECKING:
    from mxflux.recipe.schema import Precision, Recipe

BACKEND_VARIABLE = "MXFLUX_GEMM_BACKEND"
LOCAL_BACKWARDS = {None: "mx", "fp8": "fp8", "bf16": "bf16"}
HADAMARD_MXFP4, HADAMARD_MXFP6 = 16, 32
"""Points of the rotations (arXiv 2605.09825 for wgrad in MXFP4)."""
_STREAM_STRIDE = 2**20
"""Start values of linears on neighbouring ranks lie this far apart."""


def use_mx_precision(recipe: Recipe) -> None:
    """Register the recipe's MX linears or contexts; call it before the model is built.

    Raises SetupError for a conflicting environment, or a setting that the chosen implementation
    would ignore.
    """
    precision = recipe.precision
    check_backend_variable(precision.gemm_backend)
    set_local_linear_provider(None)
    set_fp6_context_builder(None)
    if not uses_mx(precision):
        return
    if recipe.model.transformer_impl == "local":
        from mxflux.mx.megatron_linear import local_linear_provider

        assert precision.gemm_backend is not None
        set_local_linear_provider(
            local_linear_provider(precision.gemm_backend, **local_options(precision))
        )
        return
    from mxflux.megatron.fp6 import get_fp6_context
    from mxflux.megatron.mx_recipe import set_recipe_options

    set_recipe_options(**te_options(precision))
    set_fp6_context_builder(get_fp6_context)


def uses_mx(precision: Precision) -> bool:
    """Whether any linear multiplies in an MX format of mxflux; raises without a GEMM backend."""
    asked = bool(precision.fp4 or precision.fp6)
    if asked and precision.gemm_backend is None:
        raise SetupError("precision.gemm_backend must be named with fp4 or fp6: none steps in")
    return asked or (bool(precision.fp8) and precision.gemm_backend is not None)


def check_backend_variable(backend: str | None) -> None:
    """Raise SetupError when the environment names another GEMM backend than the recipe."""
    inherited = os.environ.get(BACKEND_VARIABLE)
    if inherited and inherited != backend:
        raise SetupError(
            f"{BACKEND_VARIABLE}={inherited} in the environment, but precision.gemm_backend="
            f"{backend!r}: unset the variable or change the recipe"
        )


def local_options(precision: Precision) -> dict[str, Any]:
    """Options of ``mxfp4``, ``mxfp6`` or ``mxfp8`` in mxflux.mx.plans.

    Raises SetupError for a setting that the format's plan does not have.
    """
    if precision.mx_backward_precision not in LOCAL_BACKWARDS:
        raise SetupError(
            f"precision.mx_backward_precision={precision.mx_backward_precision!r} is "
            "TransformerEngine's: with model.transformer_impl: local choose fp8, bf16 or null"
        )
    options: dict[str, Any] = {
        "scale_mode": precision.mx_scale_mode,
        "backward": LOCAL_BACKWARDS[precision.mx_backward_precision],
    }
    if precision.fp4:
        options["weight_2d"] = precision.mx_weight_block_2d
        options["stochastic_gradients"] = precision.mx_stochastic_rounding
        options["wgrad_hadamard"] = HADAMARD_MXFP4 if precision.mx_hadamard else 0
        return options
    for key in ("mx_weight_block_2d", "mx_stochastic_rounding"):
        if getattr(precision, key):
            raise SetupError(f"precision.{key} is MXFP4's: the local linear would ignore it")
    if precision.fp6:
        options["hadamard"] = HADAMARD_MXFP6 if precision.mx_hadamard else 0
    elif precision.mx_hadamard:
        raise SetupError("precision.mx_hadamard is MXFP4's and MXFP6's: MXFP8 would ignore it")
    return options


def te_options(precision: Precision) -> dict[str, Any]:
    """Options of MXFP4BlockScaling and MXFP6BlockScaling of the patched TransformerEngine."""
    if precision.mx_backward_precision == "fp8":
        raise SetupError(
            "precision.mx_backward_precision='fp8' is the local spec's: with "
            "model.transformer_impl: transformer_engine choose mxfp8 or mxfp8_e5m2"
        )
    backward = precision.mx_backward_precision
    return {
        "backend": precision.gemm_backend,
        "scale_mode": precision.mx_scale_mode,
        "use_hadamard": precision.mx_hadamard,
        "stochastic_rounding": precision.mx_stochastic_rounding,
        "weight_block_2d": precision.mx_weight_block_2d,
        "dgrad_precision": backward,
        "wgrad_precision": backward,
    }


def start_stochastic_rounding(
    model: torch.nn.Module, seed: int, data_parallel_rank: int, micro_steps: int
) -> None:
    """Give every local MX linear of a rank a stream of its own, at its place in the run.

    A linear's state is [start value, tensors rounded so far]; it is in no checkpoint because it
    follows from the number of training micro-steps done.
    """
    linears = [module for module in model.modules() if hasattr(module, "mx_site")]
    for index, module in enumerate(linears):
        start = (seed * _STREAM_STRIDE + data_parallel_rank) * _STREAM_STRIDE + index
        state: Any = module.rng
        state.copy_(torch.tensor([start % 2**63, micro_steps], dtype=torch.int64))
