# SPDX-License-Identifier: Apache-2.0
"""What a FluxConfig may say: each rule yields one line naming field and value."""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import cache
from typing import TYPE_CHECKING, Any

from megatron.core.transformer.enums import AttnBackend
from megatron.core.transformer.transformer_config import TransformerConfig

from .architecture import FluxArchitecture
from .timestep_names import TIMESTEP_STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .config import FluxConfig

FIXED: dict[str, tuple[object, str]] = {
    "model_type": ("flux", "this is the Flux model"),
    "hetereogenous_dist_checkpoint": (
        True,
        "joint and single blocks differ: one checkpoint key a layer",
    ),
    "rotary_interleaved": (True, "Flux rotates adjacent pairs"),
    "qk_layernorm": (True, "Flux normalizes q and k"),
    "hidden_dropout": (0.0, "Flux has no dropout in the residual path"),
    "pipeline_model_parallel_size": (1, "Flux runs without pipeline parallelism"),
    "context_parallel_size": (1, "Flux runs without context parallelism"),
    "sequence_parallel": (False, "text and image tokens are concatenated on the sequence axis"),
}
"""Fields with one possible value, and why."""

ACTED_ON = frozenset(
    {
        "tensor_model_parallel_size",
        "perform_initialization",
        "use_cpu_initialization",
        "fp16",
        "bf16",
        "params_dtype",
        "timers",
        "finalize_model_grads_func",
        "grad_scale_func",
        "no_sync_func",
        "grad_sync_func",
        "param_sync_func",
        "deterministic_mode",
        "gradient_accumulation_fusion",
        "use_te_rng_tracker",
        "pipeline_dtype",
        "deallocate_pipeline_outputs",
        "barrier_with_L1_time",
        "disable_parameter_transpose_cache",
        "num_layers",
        "hidden_size",
        "num_attention_heads",
        "attention_backend",
        "num_query_groups",
        "kv_channels",
        "ffn_hidden_size",
        "attention_dropout",
        "layernorm_epsilon",
        "add_qkv_bias",
        "activation_func",
        "init_method",
        "output_layer_init_method",
        "init_method_std",
        "attention_softmax_in_fp32",
        "disable_bf16_reduced_precision_matmul",
        "apply_rope_fusion",
        "recompute_granularity",
        "recompute_method",
        "recompute_num_layers",
        "recompute_modules",
        "distribute_saved_activations",
        "fp8",
        "fp8_recipe",
        "fp8_param",
        "fp8_quantizer_factory",
        "fp8_margin",
        "fp8_interval",
        "fp8_amax_history_len",
        "fp8_amax_compute_algo",
        "fp8_wgrad",
        "fp8_dot_product_attention",
        "fp8_multi_head_attention",
        "tp_only_amax_red",
        "first_last_layers_bf16",
        "num_layers_at_start_in_bf16",
        "num_layers_at_end_in_bf16",
        "fp4",
        "fp4_recipe",
        "fp4_param",
        "fp4_quantizer_factory",
        "fp4_use_native_te_autocast",
        "transformer_impl",
    }
)
"""Megatron fields that the model, its linears, its contexts or the training loop act on."""

FILLED_IN = frozenset({"autocast_dtype", "embedding_init_method", "embedding_init_method_std"})
"""Fields that Megatron's post-init derives from others and that Flux never reads."""

_BOOLEANS = ("guidance_embed", "single_block_bias", "add_qkv_bias", "fp4_use_native_te_autocast")
FP6_FORMATS = ("e2m3", "e3m2")
IMPLEMENTATIONS = ("transformer_engine", "local")
RECOMPUTED_MODULES = ("core_attn",)


def find_problems(config: FluxConfig) -> list[str]:
    """Every reason why ``config`` cannot be run as it stands; empty when there is none."""
    rules = (_fixed, _choices, _ranges, _sizes, _unused, _attention, _precision, _recompute)
    return [problem for rule in rules for problem in rule(config)]


def _fixed(config: FluxConfig) -> Iterator[str]:
    for name, (value, reason) in FIXED.items():
        actual = getattr(config, name)
        if actual != value:
            yield f"Flux requires {name}={value!r}, got {actual!r}: {reason}"


def _choices(config: FluxConfig) -> Iterator[str]:
    yield from _one_of(
        "timestep_sampling_strategy", config.timestep_sampling_strategy, TIMESTEP_STRATEGIES
    )
    yield from _one_of("transformer_impl", config.transformer_impl, IMPLEMENTATIONS)
    for name in _BOOLEANS:
        if not isinstance(getattr(config, name), bool):
            yield f"{name}={getattr(config, name)!r} must be true or false"


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> Iterator[str]:
    if value not in allowed:
        yield f"{name}={value!r} is unknown. Choose from: {', '.join(allowed)}."


def _ranges(config: FluxConfig) -> Iterator[str]:
    if not 0.0 <= config.cfg_dropout_prob <= 1.0:
        yield f"cfg_dropout_prob={config.cfg_dropout_prob!r} must be between 0 and 1"
    if not 0.0 <= config.attention_dropout < 1.0:
        yield f"attention_dropout={config.attention_dropout!r} must be in [0, 1)"
    if config.layernorm_epsilon <= 0:
        yield f"layernorm_epsilon={config.layernorm_epsilon!r} must be positive"
    if not config.guidance_embed and config.guidance_scale != 3.5:
        yield (
            f"guidance_scale={config.guidance_scale!r} has no effect without guidance_embed=True"
        )
    total = config.num_joint_layers + config.num_single_layers
    if config.num_layers not in (0, total):
        yield (
            f"num_layers={config.num_layers} is not num_joint_layers + num_single_layers "
            f"({config.num_joint_layers} + {config.num_single_layers})"
        )


def _sizes(config: FluxConfig) -> Iterator[str]:
    values: dict[str, Any] = {
        name: getattr(config, name) for name in FluxArchitecture.__dataclass_fields__
    }
    try:
        FluxArchitecture(**values)
    except ValueError as error:
        yield str(error)
        return
    head_dim = config.hidden_size // config.num_attention_heads
    if config.kv_channels not in (None, head_dim):
        yield f"kv_channels={config.kv_channels} is not head_dim={head_dim}"
    if config.num_query_groups not in (None, config.num_attention_heads):
        yield (
            f"num_query_groups={config.num_query_groups} is not "
            f"num_attention_heads={config.num_attention_heads}: Flux has no grouped queries"
        )
    tp = config.tensor_model_parallel_size
    if config.num_attention_heads % tp or values["ffn_hidden_size"] % tp:
        yield (
            f"num_attention_heads={config.num_attention_heads} and "
            f"ffn_hidden_size={values['ffn_hidden_size']} must divide by "
            f"tensor_model_parallel_size={tp}"
        )


def _unused(config: FluxConfig) -> Iterator[str]:
    for field in fields(TransformerConfig):
        if field.name in ACTED_ON or field.name in FIXED or field.name in FILLED_IN:
            continue
        value = getattr(config, field.name)
        # dataclasses.replace passes on what post-init made of a default.
        if value not in (_default(field), getattr(_settled(), field.name)):
            yield f"{field.name}={value!r} has no effect on Flux; leave it at {_default(field)!r}"


@cache
def _settled() -> TransformerConfig:
    """Megatron's defaults after its post-init."""
    return TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1)


def _default(field: Any) -> Any:
    if field.default is not MISSING:
        return field.default
    return field.default_factory()


def _attention(config: FluxConfig) -> Iterator[str]:
    if config.transformer_impl == "local":
        if config.attention_backend is AttnBackend.fused:
            yield (
                "attention_backend='fused' is TransformerEngine's: set "
                "transformer_impl='transformer_engine', or auto, flash, unfused or local"
            )
        if config.apply_rope_fusion:
            yield "apply_rope_fusion=True is TransformerEngine's: transformer_impl is 'local'"
    elif config.attention_backend is AttnBackend.local:
        yield "attention_backend='local' switches TransformerEngine's attention off entirely"
    for key in ("fused_qk_norm_rope", "fused_qkv_prologue"):
        state = getattr(config, key)
        if config.apply_rope_fusion and state != "off":
            yield f"apply_rope_fusion=True and {key}={state!r} both claim the rotation"
    if config.fused_qk_norm_rope == config.fused_qkv_prologue == "on":
        yield "fused_qk_norm_rope='on' and fused_qkv_prologue='on': only one of them can run"


def _precision(config: FluxConfig) -> Iterator[str]:
    asked = [name for name in ("fp8", "fp4", "fp6") if getattr(config, name)]
    if len(asked) > 1:
        shown = ", ".join(f"{name}={getattr(config, name)!r}" for name in asked)
        yield f"{shown}: choose one, they exclude each other"
    if config.fp6 is not None:
        yield from _one_of("fp6", config.fp6, FP6_FORMATS)
    if config.fp4 and config.fp4_recipe is None:
        yield f"fp4={config.fp4!r} needs fp4_recipe"
    if config.fp4_recipe is not None and not config.fp4:
        yield f"fp4_recipe={config.fp4_recipe!r} has no effect without fp4"
    if config.fp4_use_native_te_autocast and not config.fp4:
        yield "fp4_use_native_te_autocast=True has no effect without fp4"
    yield from _idle(config, "fp8", config.fp8)
    yield from _idle(config, "num_layers_at", config.first_last_layers_bf16)
    if config.transformer_impl == "local":
        for name in (
            "fp8_param",
            "fp4_param",
            "fp4_use_native_te_autocast",
            "first_last_layers_bf16",
        ):
            if getattr(config, name):
                yield f"{name}=True is TransformerEngine's: transformer_impl is 'local'"
    if config.first_last_layers_bf16 and not asked:
        yield "first_last_layers_bf16=True has no effect without fp8, fp4 or fp6"


def _idle(config: FluxConfig, prefix: str, switch: object) -> Iterator[str]:
    if switch:
        return
    for field in fields(TransformerConfig):
        value = getattr(config, field.name)
        if field.name.startswith(f"{prefix}_") and value != _default(field):
            needed = "fp8" if prefix == "fp8" else "first_last_layers_bf16=True"
            yield f"{field.name}={value!r} has no effect without {needed}"


def _recompute(config: FluxConfig) -> Iterator[str]:
    if config.recompute_granularity is None:
        for name in ("recompute_method", "recompute_num_layers"):
            if getattr(config, name) is not None:
                yield (
                    f"{name}={getattr(config, name)!r} has no effect without recompute_granularity"
                )
    unknown = set(config.recompute_modules or ()) - set(RECOMPUTED_MODULES)
    if unknown:
        yield (
            f"recompute_modules={sorted(unknown)} cannot be recomputed alone in Flux: "
            f"only {list(RECOMPUTED_MODULES)}"
        )
    if config.distribute_saved_activations and config.recompute_granularity != "full":
        yield "distribute_saved_activations=True has no effect without recompute_granularity='full'"
