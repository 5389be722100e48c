# SPDX-License-Identifier: Apache-2.0
"""Rules of `precision`: one format at a time, served by something that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxflux.recipe.schema import Recipe

BACKENDS = {
    "cpu": ("emulated",),
    "h200": ("emulated", "triton"),
    "mi355x": ("emulated", "triton", "hipblaslt", "aiter"),
}
"""GEMM backends that a device can run."""
LOCAL_BACKWARDS = (None, "fp8", "bf16")


def _one_format(r: Recipe) -> Iterator[Finding]:
    p = r.precision
    asked = [f"{name}={getattr(p, name)}" for name in ("fp8", "fp4", "fp6") if getattr(p, name)]
    if len(asked) > 1:
        key = "precision." + asked[-1].partition("=")[0]
        yield Finding(key, f"precision: {', '.join(asked)} exclude each other", "choose one")
    if p.fp4 and p.fp4_recipe is None:
        message = f"precision.fp4={p.fp4} without precision.fp4_recipe"
        yield Finding("precision.fp4", message, "set fp4_recipe: mxfp4")


def uses_mx(r: Recipe) -> bool:
    """Whether linears multiply through mxflux: fp4, fp6, and MXFP8 of the local spec."""
    p = r.precision
    local_mxfp8 = p.fp8 and p.fp8_recipe == "mxfp8" and r.model.transformer_impl == "local"
    return bool(p.fp4 or p.fp6 or local_mxfp8)


def _backend(r: Recipe) -> Iterator[Finding]:
    if not uses_mx(r):
        return
    backend, known = r.precision.gemm_backend, BACKENDS[r.device]
    if backend is None:
        message = "precision.gemm_backend is not set and fp4, fp6 or fp8 needs one"
        yield Finding("precision.gemm_backend", message, f"on {r.device}: {', '.join(known)}")
    elif backend not in known:
        message = f"precision.gemm_backend={backend} with device={r.device}"
        yield Finding("precision.gemm_backend", message, f"there it is one of {', '.join(known)}")
    if backend == "aiter" and r.precision.fp6 == "e3m2":
        message = "precision.fp6=e3m2 with precision.gemm_backend=aiter"
        yield Finding("precision.fp6", message, "AITER's FP6 GEMM takes e2m3")


def _local(r: Recipe) -> Iterator[Finding]:
    p = r.precision
    if r.model.transformer_impl != "local":
        if p.mx_backward_precision == "fp8":
            message = "precision.mx_backward_precision=fp8 with transformer_impl=transformer_engine"
            yield Finding("precision.mx_backward_precision", message, "there it is mxfp8")
        return
    if p.mx_backward_precision not in LOCAL_BACKWARDS:
        message = (
            f"precision.mx_backward_precision={p.mx_backward_precision} with transformer_impl=local"
        )
        yield Finding("precision.mx_backward_precision", message, "there it is null, fp8 or bf16")
    if p.fp8 and (p.fp8, p.fp8_recipe) != ("e4m3", "mxfp8"):
        message = f"precision.fp8={p.fp8}, fp8_recipe={p.fp8_recipe} with transformer_impl=local"
        yield Finding("precision.fp8", message, "the local spec serves e4m3 with mxfp8 only")
    for key in ("fp4_use_native_te_autocast", "fp8_param_gather"):
        if getattr(p, key):
            message = f"precision.{key}=true with transformer_impl=local"
            yield Finding(f"precision.{key}", message, "it is TransformerEngine's")
    for key in ("fp8_dot_product_attention", "fp8_multi_head_attention"):
        if getattr(p, key):
            yield Finding(f"precision.{key}", f"precision.{key}=true with transformer_impl=local")


def _mxfp4_only(r: Recipe) -> Iterator[Finding]:
    p, local = r.precision, r.model.transformer_impl == "local"
    if not local or p.fp4 or not uses_mx(r):
        return
    for key in ("mx_weight_block_2d", "mx_stochastic_rounding"):
        if getattr(p, key):
            message = f"precision.{key}=true without precision.fp4: the local linear ignores it"
            yield Finding(f"precision.{key}", message)


def _options(r: Recipe) -> Iterator[Finding]:
    p = r.precision
    if p.mx_hadamard and p.mx_weight_block_2d and r.model.transformer_impl != "local":
        message = "precision.mx_hadamard=true with precision.mx_weight_block_2d=true"
        yield Finding("precision.mx_weight_block_2d", message, "a square has one scale, unrotated")
    if p.mx_backward_precision == "bf16" and p.mx_stochastic_rounding:
        message = "precision.mx_stochastic_rounding=true with mx_backward_precision=bf16"
        yield Finding("precision.mx_stochastic_rounding", message, "there is nothing to round")
    if p.params_dtype == "float32" and p.grad_reduce_in_bf16:
        message = "precision.grad_reduce_in_bf16=true with precision.params_dtype=float32"
        yield Finding("precision.grad_reduce_in_bf16", message, "Megatron keeps fp32 gradients")
    if p.fp8 and p.fp8_recipe == "mxfp8" and r.device == "h200" and not uses_mx(r):
        message = "precision.fp8_recipe=mxfp8 with device=h200 and transformer_impl"
        yield Finding("precision.fp8_recipe", f"{message}=transformer_engine", "Hopper has no MX")


RULES = (_one_format, _backend, _local, _mxfp4_only, _options)
