# SPDX-License-Identifier: Apache-2.0
"""What the built objects of a run hold for each key of its recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mxflux.recipe.schema.recipe import ARCHITECTURE_KEYS
from mxflux.recipe.values import resolved_value

from .plain import plain, short_dtype

if TYPE_CHECKING:
    from mxflux.recipe.schema import Recipe


@dataclass(frozen=True)
class Place:
    """Where a key lives: holder (config, ddp, optimizer, scheduler), attribute, how it reads."""

    holder: str
    attribute: str
    read: Callable[[Any, Recipe], Any] = lambda value, _: plain(value)


def _not(value: Any, _: Recipe) -> Any:
    return not value


def _dtype(value: Any, _: Recipe) -> Any:
    return short_dtype(value)


def _steps(value: Any, recipe: Recipe) -> Any:
    """The scheduler counts samples."""
    steps = value / recipe.schedule.global_batch_size
    return int(steps) if steps == int(steps) else steps


def _of_fp8(value: Any, recipe: Recipe) -> Any:
    """Without FP8 the optimizer has no recipe, and needs none."""
    return value if recipe.precision.fp8 else recipe.precision.fp8_recipe


def _activation(value: Any, _: Recipe) -> Any:
    from mxflux.flux.config import ACTIVATIONS

    return next((name for name, function in ACTIVATIONS.items() if function is value), str(value))


_CONFIG = {
    "model": (
        "guidance_scale cfg_dropout_prob timestep_sampling_strategy transformer_impl "
        "attention_backend apply_rope_fusion rotary_interleaved layernorm_epsilon "
        "attention_dropout attention_softmax_in_fp32 use_cpu_initialization recompute_granularity "
        "recompute_method recompute_num_layers recompute_modules first_last_layers_bf16 "
        "num_layers_at_start_in_bf16 num_layers_at_end_in_bf16 fused_qk_norm_rope "
        "fused_ln_modulate fused_gate_residual fused_qkv_prologue fused_mlp fused_ln_pack"
    ),
    "precision": (
        "params_dtype disable_bf16_reduced_precision_matmul fp4 fp4_recipe "
        "fp4_use_native_te_autocast fp6 fp8 fp8_recipe fp8_margin fp8_amax_history_len "
        "fp8_amax_compute_algo fp8_wgrad fp8_dot_product_attention fp8_multi_head_attention "
        "tp_only_amax_red"
    ),
    "schedule": "deterministic_mode",
    "parallel": (
        "tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size "
        "sequence_parallel gradient_accumulation_fusion"
    ),
}
_OPTIMIZER = (
    "optimizer lr min_lr weight_decay adam_beta1 adam_beta2 adam_eps clip_grad "
    "use_precision_aware_optimizer"
)
_DTYPES = "main_params_dtype main_grads_dtype exp_avg_dtype exp_avg_sq_dtype"

PLACES: dict[str, Place] = {
    **{f"model.{key}": Place("config", key) for key in ARCHITECTURE_KEYS},
    **{f"{s}.{key}": Place("config", key) for s, keys in _CONFIG.items() for key in keys.split()},
    "model.activation_func": Place("config", "activation_func", _activation),
    "precision.fp8_param_gather": Place("config", "fp8_param"),
    "schedule.te_rng_tracker": Place("config", "use_te_rng_tracker"),
    "precision.grad_reduce_in_bf16": Place("ddp", "grad_reduce_in_fp32", _not),
    "parallel.use_distributed_optimizer": Place("ddp", "use_distributed_optimizer"),
    "parallel.overlap_grad_reduce": Place("ddp", "overlap_grad_reduce"),
    "parallel.overlap_param_gather": Place("ddp", "overlap_param_gather"),
    "parallel.ddp_bucket_size": Place("ddp", "bucket_size"),
    "parallel.ddp_average_in_collective": Place("ddp", "average_in_collective"),
    "parallel.defer_grad_buffer_zero": Place("ddp", "defer_grad_buffer_zero"),
    **{f"optimizer.{key}": Place("optimizer", key) for key in _OPTIMIZER.split()},
    **{f"optimizer.{key}": Place("optimizer", key, _dtype) for key in _DTYPES.split()},
    "optimizer.lr_warmup_iters": Place("scheduler", "lr_warmup_steps", _steps),
    "optimizer.lr_decay_iters": Place("scheduler", "lr_decay_steps", _steps),
    "optimizer.lr_warmup_init": Place("scheduler", "init_lr"),
    "optimizer.lr_decay_style": Place("scheduler", "lr_decay_style"),
}
"""Dotted key -> place, for every key that a config of Megatron or Flux holds."""

TWINS = {
    "precision.fp8_recipe": Place("optimizer", "fp8_recipe", _of_fp8),
}
"""Second places of keys: what is there is reported where it is not what the recipe says."""


def live_values(recipe: Recipe, holders: Mapping[str, Any]) -> dict[str, Any]:
    """Value by dotted key, of every key whose holder is given.

    A place that a holder lacks (a stock Megatron-LM) reads as False: what is not there is off.
    """
    found = _read(PLACES, recipe, holders)
    for key, value in _read(TWINS, recipe, holders).items():
        if value != plain(resolved_value(recipe, key)):
            found[key] = value
    return found


def _read(
    places: Mapping[str, Place], recipe: Recipe, holders: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        key: place.read(getattr(holders[place.holder], place.attribute, False), recipe)
        for key, place in places.items()
        if holders.get(place.holder) is not None
    }
