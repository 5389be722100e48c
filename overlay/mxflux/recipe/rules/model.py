# SPDX-License-Identifier: Apache-2.0
"""Rules of `model`: sizes that make a model, and who serves which kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxflux.recipe.schema.recipe import ARCHITECTURE_KEYS, build_architecture

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxflux.recipe.schema import Recipe


MX_GATES = ("fused_qkv_prologue", "fused_mlp", "fused_ln_pack")
"""Gates of chains that contain an MX GEMM."""
GATES = ("fused_qk_norm_rope", "fused_ln_modulate", "fused_gate_residual", *MX_GATES)


def _sizes(r: Recipe) -> Iterator[Finding]:
    given = {name: getattr(r.model, name) for name in ARCHITECTURE_KEYS}
    try:
        build_architecture(r.model.preset, given)
    except ValueError as error:
        message = str(error)
        named = [name for name in given if f"{name}=" in message]
        # The key to correct: one that the recipe sets, the one that the message begins with.
        named.sort(key=lambda name: (given[name] is None, message.index(f"{name}=")))
        yield Finding(f"model.{named[0] if named else 'preset'}", f"model: {message}")


def _rotation(r: Recipe) -> Iterator[Finding]:
    model = r.model
    if not model.rotary_interleaved:
        message = "model.rotary_interleaved=false: Flux rotates adjacent pairs"
        yield Finding("model.rotary_interleaved", message, "only true is supported")
    if not model.apply_rope_fusion:
        return
    kind = model.position_embedding_type
    if kind != "rope" and "model.apply_rope_fusion" not in r.expect_overridden:
        yield Finding(
            "model.apply_rope_fusion",
            f"model.apply_rope_fusion=true with model.position_embedding_type={kind}: Megatron "
            "would clear it",
            "set position_embedding_type: rope, or list model.apply_rope_fusion under "
            "expect_overridden",
        )
    for key in ("fused_qk_norm_rope", "fused_qkv_prologue"):
        if getattr(model, key) != "off":
            message = f"model.{key}={getattr(model, key)} with model.apply_rope_fusion=true"
            yield Finding(f"model.{key}", f"{message}: both claim the rotation", "keep one of them")


def _implementation(r: Recipe) -> Iterator[Finding]:
    model = r.model
    if model.transformer_impl == "transformer_engine":
        if r.device == "cpu":
            message = "model.transformer_impl=transformer_engine with device=cpu"
            hint = "TransformerEngine needs a GPU: set transformer_impl: local"
            yield Finding("model.transformer_impl", message, hint)
        if model.attention_backend == "local":
            message = (
                "model.attention_backend=local switches all of TransformerEngine's attention off"
            )
            yield Finding("model.attention_backend", message, "auto, flash, fused or unfused")
        return
    if model.attention_backend == "fused":
        message = "model.attention_backend=fused with model.transformer_impl=local"
        hint = "fused is TransformerEngine's: auto, flash, unfused or local"
        yield Finding("model.attention_backend", message, hint)
    for key in ("apply_rope_fusion", "first_last_layers_bf16"):
        if getattr(model, key):
            message = f"model.{key}=true with model.transformer_impl=local"
            yield Finding(f"model.{key}", message, "it is TransformerEngine's")


def _gates(r: Recipe) -> Iterator[Finding]:
    model = r.model
    if model.fused_qk_norm_rope == "on" and model.fused_qkv_prologue == "on":
        message = "model.fused_qk_norm_rope=on with model.fused_qkv_prologue=on"
        yield Finding("model.fused_qkv_prologue", message, "only one of them can run: use auto")
    if model.fused_ln_pack == "on" and "off" in {model.fused_qkv_prologue, model.fused_mlp}:
        message = "model.fused_ln_pack=on without model.fused_qkv_prologue and model.fused_mlp"
        yield Finding("model.fused_ln_pack", message, "they read what it packs")
    if model.fused_mlp == "on" and model.activation_func != "openai_gelu":
        message = f"model.fused_mlp=on with model.activation_func={model.activation_func}"
        yield Finding("model.fused_mlp", message, "its activation is openai_gelu")


def _gates_on_the_device(r: Recipe) -> Iterator[Finding]:
    for key in GATES:
        if getattr(r.model, key) == "on" and r.device == "cpu":
            message = f"model.{key}=on with device=cpu"
            yield Finding(f"model.{key}", message, "its kernels need a GPU; auto declines here")


def _mx_gates(r: Recipe) -> Iterator[Finding]:
    precision = r.precision
    local = r.model.transformer_impl == "local"
    mx = precision.fp4 or precision.fp6 or precision.fp8
    for key in MX_GATES:
        packs = key == "fused_ln_pack"  # the others serve BF16 too
        if getattr(r.model, key) != "off" and not (local and (mx or not packs)):
            what = "MX linears of the local spec" if packs else "the linears of the local spec"
            message = f"model.{key}={getattr(r.model, key)} without {what}"
            hint = "it needs transformer_impl: local"
            hint += " and precision.fp4, fp6 or fp8" if packs else ""
            yield Finding(f"model.{key}", message, hint)
        elif getattr(r.model, key) == "on" and mx and precision.mx_backward_precision is not None:
            got = f"precision.mx_backward_precision={precision.mx_backward_precision}"
            hint = "the chain multiplies in the MX format both ways: leave it null"
            yield Finding(f"model.{key}", f"model.{key}=on with {got}", hint)


def _recompute(r: Recipe) -> Iterator[Finding]:
    model = r.model
    for name in model.recompute_modules or ():
        if name != "core_attn":
            message = f"model.recompute_modules: {name!r} cannot be recomputed alone"
            yield Finding("model.recompute_modules", message, "only core_attn can")
    if model.recompute_granularity == "full" and model.recompute_method is None:
        message = "model.recompute_granularity=full without model.recompute_method"
        yield Finding("model.recompute_granularity", message, "set recompute_method: uniform")


def _edge_layers(r: Recipe) -> Iterator[Finding]:
    if not r.model.first_last_layers_bf16:
        return
    if r.precision.fp8 and r.precision.fp8_recipe == "delayed":
        message = "model.first_last_layers_bf16=true with precision.fp8_recipe=delayed"
        yield Finding("model.first_last_layers_bf16", message, "Megatron keeps one scale history")
    kept = r.model.num_layers_at_start_in_bf16 + r.model.num_layers_at_end_in_bf16
    given = {name: getattr(r.model, name) for name in ARCHITECTURE_KEYS}
    try:
        layers = build_architecture(r.model.preset, given).num_layers
    except ValueError:
        return  # _sizes reports it
    if not 0 < kept < layers:
        message = f"model.first_last_layers_bf16=true keeps {kept} of {layers} blocks in BF16"
        hint = "num_layers_at_start_in_bf16 and num_layers_at_end_in_bf16 say how many"
        yield Finding("model.first_last_layers_bf16", message, hint)


def _noise_levels(r: Recipe) -> Iterator[Finding]:
    model = r.model
    if model.timestep_sampling_strategy == "direct_uniform" and model.scheduler_shift != 1:
        message = f"model.scheduler_shift={model.scheduler_shift} with direct_uniform"
        hint = "it draws the noise levels unshifted: 1.0, or timestep_sampling_strategy: uniform"
        yield Finding("model.scheduler_shift", message, hint)


RULES = (
    _sizes,
    _rotation,
    _implementation,
    _gates,
    _gates_on_the_device,
    _mx_gates,
    _recompute,
    _edge_layers,
    _noise_levels,
)
