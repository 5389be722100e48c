# SPDX-License-Identifier: Apache-2.0
"""Keys that nothing reads under the rest of the recipe: set all the same, they are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .finding import Finding
from .precision import uses_mx

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxflux.recipe.schema import Recipe


@dataclass(frozen=True)
class Idle:
    """Keys of a section that have no effect unless ``needed`` holds."""

    section: str
    keys: tuple[str, ...]
    needed: Callable[[Any], bool]
    unless: str


def _guided(r: Recipe) -> bool:
    from mxflux.flux.architecture import PRESETS

    own = r.model.guidance_embed
    return PRESETS[r.model.preset].guidance_embed if own is None else own


IDLE = (
    Idle("model", ("guidance_scale",), _guided, "guidance_embed: true"),
    Idle(
        "model",
        ("position_embedding_type",),
        lambda r: r.model.apply_rope_fusion,
        "apply_rope_fusion: true (Flux rotates in any case)",
    ),
    Idle(
        "model",
        ("recompute_method", "recompute_num_layers"),
        lambda r: r.model.recompute_granularity == "full",
        "recompute_granularity: full",
    ),
    Idle(
        "model",
        ("recompute_modules",),
        lambda r: r.model.recompute_granularity == "selective",
        "recompute_granularity: selective",
    ),
    Idle(
        "model",
        ("first_last_layers_bf16",),
        lambda r: r.precision.fp8 or r.precision.fp4 or r.precision.fp6,
        "precision.fp8, fp4 or fp6",
    ),
    Idle(
        "model",
        ("num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16"),
        lambda r: r.model.first_last_layers_bf16,
        "first_last_layers_bf16: true",
    ),
    Idle(
        "precision",
        ("fp4_recipe", "fp4_use_native_te_autocast"),
        lambda r: r.precision.fp4,
        "precision.fp4",
    ),
    Idle(
        "precision",
        (
            "gemm_backend",
            "mx_backward_precision",
            "mx_scale_mode",
            "mx_stochastic_rounding",
            "mx_weight_block_2d",
        ),
        uses_mx,
        "fp4, fp6, or fp8 with fp8_recipe: mxfp8 and transformer_impl: local",
    ),
    Idle(
        "precision",
        ("mx_hadamard",),
        lambda r: r.precision.fp4 or r.precision.fp6,
        "precision.fp4 or fp6",
    ),
    Idle(
        "precision",
        (
            "fp8_recipe",
            "fp8_wgrad",
            "fp8_dot_product_attention",
            "fp8_multi_head_attention",
            "fp8_param_gather",
        ),
        lambda r: r.precision.fp8,
        "precision.fp8",
    ),
    Idle(
        "precision",
        ("fp8_margin", "fp8_amax_history_len", "fp8_amax_compute_algo", "tp_only_amax_red"),
        lambda r: r.precision.fp8 and r.precision.fp8_recipe == "delayed",
        "precision.fp8 with fp8_recipe: delayed",
    ),
    Idle(
        "data",
        (
            "path",
            "num_workers",
            "val_num_workers",
            "prefetch_factor",
            "max_samples_per_sequence",
            "shuffle_buffer_size",
            "empty_encodings_path",
        ),
        lambda r: r.data.kind == "energon",
        "data.kind: energon (the others are computed in place)",
    ),
    Idle("data", ("mock_samples",), lambda r: r.data.kind == "mock", "data.kind: mock"),
    Idle(
        "data",
        ("prefetch_factor",),
        lambda r: r.data.num_workers or r.data.val_num_workers,
        "a loader process (num_workers or val_num_workers above 0)",
    ),
    Idle(
        "schedule",
        ("manual_gc_interval", "manual_gc_eval"),
        lambda r: r.schedule.manual_gc,
        "manual_gc: true",
    ),
    Idle(
        "schedule",
        ("warmup_validation_steps",),
        lambda r: r.evaluation.interval,
        "evaluation.interval",
    ),
    Idle(
        "optimizer",
        ("lr_warmup_init", "nemo_aligned_lr_warmup"),
        lambda r: r.optimizer.lr_warmup_iters,
        "lr_warmup_iters",
    ),
    Idle(
        "optimizer",
        ("main_params_dtype", "main_grads_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"),
        lambda r: r.optimizer.use_precision_aware_optimizer,
        "use_precision_aware_optimizer: true",
    ),
    Idle(
        "parallel",
        ("ddp_bucket_size",),
        lambda r: r.parallel.overlap_grad_reduce,
        "overlap_grad_reduce: true",
    ),
    Idle(
        "checkpoint",
        ("finetune",),
        lambda r: r.checkpoint.load,
        "checkpoint.load",
    ),
    Idle(
        "checkpoint",
        ("async_save", "keep", "no_save_optim"),
        lambda r: r.checkpoint.save_interval or r.checkpoint.save_final,
        "save_interval or save_final",
    ),
    Idle(
        "evaluation",
        (
            "iters",
            "samples",
            "micro_batch_size",
            "global_batch_size",
            "remainder",
            "timestep_source",
            "prefetch",
            "at_start",
            "at_end",
        ),
        lambda r: r.evaluation.interval,
        "evaluation.interval",
    ),
    Idle(
        "evaluation",
        ("remainder",),
        lambda r: r.evaluation.samples,
        "evaluation.samples",
    ),
    Idle(
        "compile",
        ("strategy", "backend", "mode", "fullgraph", "emulate_precision_casts"),
        lambda r: r.compile.enable,
        "compile.enable: true",
    ),
    Idle(
        "compile",
        ("mode", "emulate_precision_casts"),
        lambda r: r.compile.backend == "inductor",
        "compile.backend: inductor",
    ),
    Idle(
        "logging",
        ("wandb_entity", "wandb_mode"),
        lambda r: r.logging.wandb_project,
        "logging.wandb_project",
    ),
    Idle(
        "mlperf",
        (
            "ruleset",
            "target_val_loss",
            "log_interval",
            "train_samples",
            "eval_samples",
            "submission_org",
            "submission_platform",
            "submission_division",
            "submission_status",
        ),
        lambda r: r.mlperf.enable,
        "mlperf.enable: true",
    ),
    Idle(
        "probes",
        ("profile_step_start", "profile_step_end", "profile_rank"),
        lambda r: r.probes.train_profile,
        "probes.train_profile: true",
    ),
    Idle(
        "probes",
        ("evaluation_profile", "evaluation_iteration_timing"),
        lambda r: r.evaluation.interval,
        "evaluation.interval",
    ),
)


def find_idle(r: Recipe) -> Iterator[Finding]:
    """Keys with a value of their own that has no effect here."""
    from mxflux.recipe.keys import all_keys
    from mxflux.recipe.view import UnknownValueError

    for entry in IDLE:
        try:
            if entry.needed(r):
                continue
        except UnknownValueError:
            continue
        for name in entry.keys:
            key = f"{entry.section}.{name}"
            default = all_keys()[key].default
            value = known(r, entry.section, name, default)
            if value != default:
                yield Finding(key, f"{key}={value} has no effect without {entry.unless}")


def known(r: Recipe, section: str, name: str, default: Any) -> Any:
    """The value of a key, or ``default`` where it is reported already."""
    from mxflux.recipe.view import UnknownValueError

    try:
        return getattr(getattr(r, section), name)
    except UnknownValueError:
        return default
