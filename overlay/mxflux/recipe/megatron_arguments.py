# SPDX-License-Identifier: Apache-2.0
"""A recipe as arguments of Megatron: their names (as in ``args``) and values. No torch.

Source of the names: megatron/training/arguments.py and megatron/training/config of 0.17 to 0.19.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .values import resolved_value

if TYPE_CHECKING:
    from mxflux.recipe.schema import Recipe

PIXELS_PER_TOKEN = 16


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Argument:
    """Megatron's name for a key, and how its value is written there and read back.

    left_open: null leaves the value to Megatron. te_only: Megatron means TransformerEngine by it,
    so with transformer_impl local it is not handed on (the model's config has it all the same).
    gpu_only: Megatron asks for settings of GPUs with it, so on a CPU it is not handed on either.
    """

    dest: str
    encode: Callable[[Any], Any] = _same
    decode: Callable[[Any], Any] = _same
    left_open: bool = False
    te_only: bool = False
    gpu_only: bool = False


_SAME_NAME = {
    "model": (
        "hidden_size num_attention_heads ffn_hidden_size transformer_impl "
        "attention_backend position_embedding_type apply_rope_fusion rotary_interleaved "
        "layernorm_epsilon attention_dropout attention_softmax_in_fp32 "
        "recompute_granularity recompute_method recompute_num_layers recompute_modules "
        "first_last_layers_bf16 num_layers_at_start_in_bf16 num_layers_at_end_in_bf16"
    ),
    "precision": "grad_reduce_in_bf16 disable_bf16_reduced_precision_matmul",
    "data": "num_workers",
    "schedule": (
        "train_iters micro_batch_size global_batch_size seed manual_gc manual_gc_interval "
        "manual_gc_eval empty_unused_memory_level check_for_nan_in_loss_and_grad "
        "te_rng_tracker exit_interval exit_duration_in_mins"
    ),
    "optimizer": (
        "optimizer lr min_lr weight_decay adam_beta1 adam_beta2 adam_eps clip_grad "
        "lr_warmup_iters lr_warmup_init lr_decay_style use_precision_aware_optimizer "
        "main_params_dtype main_grads_dtype exp_avg_dtype exp_avg_sq_dtype"
    ),
    "parallel": (
        "tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size "
        "sequence_parallel use_distributed_optimizer overlap_grad_reduce overlap_param_gather "
        "ddp_average_in_collective defer_grad_buffer_zero gradient_accumulation_fusion "
        "distributed_backend distributed_timeout_minutes"
    ),
    "checkpoint": "save_interval async_save finetune load",
}
_TE_ONLY = (
    "fp4 fp4_recipe fp4_use_native_te_autocast fp8 fp8_recipe fp8_margin fp8_amax_history_len "
    "fp8_amax_compute_algo fp8_wgrad fp8_param_gather"
)

ARGUMENTS: dict[str, Argument] = {
    **{f"{s}.{key}": Argument(key) for s, keys in _SAME_NAME.items() for key in keys.split()},
    **{f"precision.{key}": Argument(key, te_only=True) for key in _TE_ONLY.split()},
    # None in Megatron's ``args`` when nobody gives it.
    "checkpoint.no_save_optim": Argument("no_save_optim", decode=bool),
    # None in Megatron's args when nobody gives it, too.
    "model.use_cpu_initialization": Argument("use_cpu_initialization", decode=bool),
    "precision.params_dtype": Argument(
        "bf16", lambda name: name == "bfloat16", lambda on: "bfloat16" if on else "float32"
    ),
    "schedule.deterministic_mode": Argument("deterministic_mode", gpu_only=True),
    "optimizer.lr_decay_iters": Argument("lr_decay_iters", left_open=True),
    "parallel.ddp_bucket_size": Argument("ddp_bucket_size", left_open=True),
    "checkpoint.optimizer_format": Argument(
        "dist_ckpt_optim_fully_reshardable",
        lambda name: name == "fully_reshardable",
        lambda on: "fully_reshardable" if on else "dp_reshardable",
    ),
    "evaluation.interval": Argument("eval_interval", left_open=True),
    "evaluation.micro_batch_size": Argument("eval_micro_batch_size", left_open=True),
    "evaluation.global_batch_size": Argument("eval_global_batch_size", left_open=True),
    "logging.interval": Argument("log_interval"),
    "logging.wandb_project": Argument("wandb_project", left_open=True),
    "logging.wandb_entity": Argument("wandb_entity", left_open=True),
}
"""Dotted key -> argument, for every key that Megatron has.

Not model.add_qkv_bias: Megatron's argument means biases on QKV alone, and it sets it wherever other
linears have biases.
"""


def is_concerned(recipe: Recipe, key: str) -> bool:
    """Whether Megatron's argument means what the key means in this run."""
    argument = ARGUMENTS[key]
    if argument.gpu_only:
        return recipe.device != "cpu"
    if not argument.te_only:
        return True
    family = "fp4" if key.startswith("precision.fp4") else "fp8"
    engine = recipe.model.transformer_impl == "transformer_engine"
    return engine and getattr(recipe.precision, family) is not None


def is_passed(recipe: Recipe, key: str) -> bool:
    """Whether the value of a key with an argument is handed to Megatron."""
    return is_concerned(recipe, key) and resolved_value(recipe, key) is not None


def megatron_arguments(recipe: Recipe) -> dict[str, Any]:
    """Name and value of every argument of a run, as plain values (no enums, no dtypes).

    Keys of the recipe come first, then what Megatron wants to know besides.
    """
    passed = {
        argument.dest: argument.encode(resolved_value(recipe, key))
        for key, argument in ARGUMENTS.items()
        if is_passed(recipe, key)
    }
    return {**passed, **_besides(recipe)}


def _besides(recipe: Recipe) -> dict[str, Any]:
    """Arguments that follow from the recipe, or that Flux settles for every recipe."""
    tokens = sequence_length(recipe)
    settled: dict[str, Any] = {
        "num_layers": recipe.architecture.num_layers,
        "seq_length": tokens,
        "max_position_embeddings": tokens,
        "tokenizer_type": "NullTokenizer",
        "vocab_size": 1,
        "hidden_dropout": 0.0,
        "qk_layernorm": True,
        "dataloader_type": "external",
        "ckpt_format": "torch_dist",
        "use_gloo_process_groups": False,
        "eval_iters": evaluation_iterations(recipe),
    }
    if recipe.model.attention_backend == "local":
        settled["spec"] = ["local"]
    if recipe.checkpoint.async_save:
        settled["use_persistent_ckpt_worker"] = True  # Megatron clears async_save without it
    return settled


def sequence_length(recipe: Recipe) -> int:
    """Tokens of a sample: text, and one for 16x16 pixels."""
    return recipe.data.text_length + (recipe.data.image_size // PIXELS_PER_TOKEN) ** 2


def evaluation_iterations(recipe: Recipe) -> int:
    """Global evaluation batches of one evaluation, 0 without evaluation."""
    evaluation = recipe.evaluation
    if evaluation.interval is None:
        return 0
    if evaluation.iters is not None:
        return evaluation.iters
    width = evaluation.global_batch_size or recipe.schedule.global_batch_size
    return -(-(evaluation.samples or 0) // width)
