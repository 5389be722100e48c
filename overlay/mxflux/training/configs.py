# SPDX-License-Identifier: Apache-2.0
"""From a recipe to Megatron's configs of model, DDP and optimizer: every key arrives."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig

from mxflux.flux.config import FluxConfig

from .errors import SetupError

if TYPE_CHECKING:
    from mxflux.recipe.schema import Recipe

DTYPES = {
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp8": torch.uint8,
}
"""Names in a recipe; an fp8 optimizer state is kept in bytes, as Megatron has it."""

_MODEL_KEYS = (
    "guidance_scale", "cfg_dropout_prob", "timestep_sampling_strategy", "transformer_impl",
    "attention_backend", "rotary_interleaved", "activation_func", "layernorm_epsilon",
    "attention_dropout", "attention_softmax_in_fp32", "use_cpu_initialization",
    "recompute_granularity", "recompute_method", "recompute_num_layers",
    "first_last_layers_bf16", "num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16",
    "fused_qk_norm_rope", "fused_ln_modulate", "fused_gate_residual", "fused_qkv_prologue",
    "fused_mlp", "fused_ln_pack",
)  # fmt: skip
_PRECISION_KEYS = (
    "disable_bf16_reduced_precision_matmul", "fp4", "fp4_recipe", "fp4_use_native_te_autocast",
    "fp6", "fp8", "fp8_recipe", "fp8_margin", "fp8_amax_history_len", "fp8_amax_compute_algo",
    "fp8_wgrad", "fp8_dot_product_attention", "fp8_multi_head_attention", "tp_only_amax_red",
)  # fmt: skip
_PARALLEL_KEYS = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
    "sequence_parallel", "gradient_accumulation_fusion",
)  # fmt: skip


def flux_config(recipe: Recipe) -> FluxConfig:
    """The model's config. Raises ValueError with every problem, each naming field and value."""
    model, precision = recipe.model, recipe.precision
    fields = {key: getattr(model, key) for key in _MODEL_KEYS}
    fields |= {key: getattr(precision, key) for key in _PRECISION_KEYS}
    fields |= {key: getattr(recipe.parallel, key) for key in _PARALLEL_KEYS}
    if model.recompute_modules is not None:
        fields["recompute_modules"] = list(model.recompute_modules)
    return FluxConfig.from_architecture(
        recipe.architecture,
        **fields,
        # Megatron's rule; the effective-config check reports a fused rotation that it dropped.
        apply_rope_fusion=model.apply_rope_fusion and model.position_embedding_type == "rope",
        fp8_param=precision.fp8_param_gather,
        params_dtype=DTYPES[precision.params_dtype],
        bf16=precision.params_dtype == "bfloat16",
        deterministic_mode=recipe.schedule.deterministic_mode,
        use_te_rng_tracker=recipe.schedule.te_rng_tracker,
    )


def ddp_config(recipe: Recipe) -> DistributedDataParallelConfig:
    """Megatron DDP's config. Raises SetupError for a key that this Megatron does not know.

    ``check_for_nan_in_grad`` stays off: the loop checks loss and gradient norm of all ranks after
    each step, so that every rank stops with one message instead of one rank alone.
    """
    parallel = recipe.parallel
    settings: dict[str, Any] = {
        "grad_reduce_in_fp32": not recipe.precision.grad_reduce_in_bf16,
        "use_distributed_optimizer": parallel.use_distributed_optimizer,
        "overlap_grad_reduce": parallel.overlap_grad_reduce,
        "overlap_param_gather": parallel.overlap_param_gather,
        "bucket_size": parallel.ddp_bucket_size,
        "average_in_collective": parallel.ddp_average_in_collective,
        "fp8_param_gather": recipe.precision.fp8_param_gather,
    }
    if parallel.defer_grad_buffer_zero:
        settings["defer_grad_buffer_zero"] = True
    known = {field.name for field in dataclasses.fields(DistributedDataParallelConfig)}
    unknown = sorted(settings.keys() - known)
    if unknown:
        raise SetupError(
            f"parallel.{', parallel.'.join(unknown)}: this Megatron-LM has no such setting; "
            "run the tree that `mxtree build` makes"
        )
    return DistributedDataParallelConfig(**settings)


def optimizer_config(recipe: Recipe) -> OptimizerConfig:
    """Megatron's optimizer config."""
    optimizer, precision = recipe.optimizer, recipe.precision
    return OptimizerConfig(
        optimizer=optimizer.optimizer,
        lr=optimizer.lr,
        min_lr=optimizer.min_lr,
        weight_decay=optimizer.weight_decay,
        adam_beta1=optimizer.adam_beta1,
        adam_beta2=optimizer.adam_beta2,
        adam_eps=optimizer.adam_eps,
        clip_grad=optimizer.clip_grad,
        bf16=precision.params_dtype == "bfloat16",
        params_dtype=DTYPES[precision.params_dtype],
        use_distributed_optimizer=recipe.parallel.use_distributed_optimizer,
        overlap_param_gather=recipe.parallel.overlap_param_gather,
        use_precision_aware_optimizer=optimizer.use_precision_aware_optimizer,
        main_params_dtype=DTYPES[optimizer.main_params_dtype],
        main_grads_dtype=DTYPES[optimizer.main_grads_dtype],
        exp_avg_dtype=DTYPES[optimizer.exp_avg_dtype],
        exp_avg_sq_dtype=DTYPES[optimizer.exp_avg_sq_dtype],
        fp8_recipe=precision.fp8_recipe if precision.fp8 else None,
    )


def schedule_of(recipe: Recipe) -> dict[str, Any]:
    """Arguments of OptimizerParamScheduler; it counts in samples.

    Raises SetupError when the warm-up is not shorter than the decay, or min_lr is above lr.
    """
    optimizer, schedule = recipe.optimizer, recipe.schedule
    decay = optimizer.lr_decay_iters or schedule.train_iters
    if optimizer.lr_warmup_iters >= decay:
        raise SetupError(
            f"optimizer.lr_warmup_iters={optimizer.lr_warmup_iters} must be below "
            f"optimizer.lr_decay_iters={decay} (default: schedule.train_iters)"
        )
    for key in ("min_lr", "lr_warmup_init"):
        if getattr(optimizer, key) > optimizer.lr:
            raise SetupError(
                f"optimizer.{key}={getattr(optimizer, key)} is above optimizer.lr={optimizer.lr}"
            )
    batch = schedule.global_batch_size
    return {
        "init_lr": optimizer.lr_warmup_init,
        "max_lr": optimizer.lr,
        "min_lr": optimizer.min_lr,
        "lr_warmup_steps": optimizer.lr_warmup_iters * batch,
        "lr_decay_steps": decay * batch,
        "lr_decay_style": optimizer.lr_decay_style,
        "start_wd": optimizer.weight_decay,
        "end_wd": optimizer.weight_decay,
        "wd_incr_steps": schedule.train_iters * batch,
        "wd_incr_style": "constant",
    }


def num_microbatches(recipe: Recipe, data_parallel_size: int) -> int:
    """Micro-batches of a step on each rank.

    Raises SetupError when the global batch does not divide among ranks and micro-batches.
    """
    schedule = recipe.schedule
    width = schedule.micro_batch_size * data_parallel_size
    if schedule.global_batch_size % width:
        raise SetupError(
            f"schedule.global_batch_size={schedule.global_batch_size} is not a multiple of "
            f"schedule.micro_batch_size={schedule.micro_batch_size} x {data_parallel_size} ranks"
        )
    return schedule.global_batch_size // width
