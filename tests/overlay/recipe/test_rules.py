# SPDX-License-Identifier: Apache-2.0
"""Rules between keys: each one refuses what it is for, and names field and value."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mxflux.recipe import Recipe
from mxflux.recipe.keys import all_keys
from mxflux.recipe.rules.idle import IDLE
from mxflux.recipe.scalars import write_scalar

if TYPE_CHECKING:
    from conftest import Faults, Load

TE = ("device=h200", "model.transformer_impl=transformer_engine")
MXFP4 = ("precision.fp4=e2m1", "precision.fp4_recipe=mxfp4", "precision.gemm_backend=emulated")
MXFP6 = ("precision.fp6=e2m3", "precision.gemm_backend=emulated")
GPU_MXFP6 = ("device=h200", *MXFP6)
FUSED_CHAINS = ("model.fused_qkv_prologue=auto", "model.fused_mlp=auto")
EVALUATION = ("evaluation.interval=10", "evaluation.samples=64")
RESAMPLE = ("data.vae_latent_mode=resample", "data.vae_scale=0.3611", "data.vae_shift=0.1159")
ENERGON = ("data.kind=energon", "data.path=/data")
MLPERF = (
    *EVALUATION,
    "mlperf.enable=true",
    "mlperf.train_samples=100",
    "mlperf.submission_org=x",
    "mlperf.submission_platform=y",
)

ACCEPTED = [
    MXFP4,
    MXFP6,
    (*TE, *MXFP4, "precision.fp4_use_native_te_autocast=true"),
    (*TE, "model.apply_rope_fusion=true", "model.position_embedding_type=rope"),
    (*TE, "precision.fp8=hybrid", "precision.fp8_amax_history_len=1024"),
    ("precision.fp8=e4m3", "precision.fp8_recipe=mxfp8", "precision.gemm_backend=emulated"),
    RESAMPLE,
    ENERGON,
    MLPERF,
    (*MLPERF, *MXFP6),
    ("data.val_num_workers=4", *ENERGON, *EVALUATION, "evaluation.micro_batch_size=4"),
    (*EVALUATION, "evaluation.samples=63", "evaluation.remainder=mask"),
    ("model.fused_ln_modulate=auto",),
    ("checkpoint.save_final=false", "checkpoint.save_interval=3", "schedule.exit_interval=6"),
    ("model.scheduler_shift=3.0", "model.timestep_sampling_strategy=uniform"),
    ("compile.enable=true", *FUSED_CHAINS, "device=h200"),
    ("device=h200", *FUSED_CHAINS),
    ('launch.environment={NCCL_DEBUG: "INFO", CUDA_LAUNCH_BLOCKING: "1"}',),
    (*GPU_MXFP6, "model.fused_qkv_prologue=on", "model.fused_mlp=on", "model.fused_ln_pack=on"),
    ("optimizer.lr_decay_style=cosine", "optimizer.min_lr=1e-5"),
    ("optimizer.min_lr=2e-4",),
    ("optimizer.lr_warmup_iters=1600", "optimizer.lr_decay_iters=4000"),
    ("compile.enable=true", "compile.strategy=stack"),
    ("launch.nproc_per_node=2", "launch.nodes=2", "schedule.global_batch_size=16"),
    (
        *TE,
        "model.first_last_layers_bf16=true",
        "model.num_layers_at_end_in_bf16=0",
        *MXFP4,
    ),
    (
        *TE,
        "model.apply_rope_fusion=true",
        "model.position_embedding_type=none",
        "expect_overridden=[model.apply_rope_fusion]",
    ),
]


@pytest.mark.parametrize("overrides", ACCEPTED)
def test_accepted(load_text: Load, overrides: tuple[str, ...]) -> None:
    load_text(overrides=overrides)


REFUSED = [
    # model
    ("model.hidden_size=100", "model: axes_dim=(8, 12, 12) sums to 32, not to head_dim=25"),
    ("model.axes_dim=[8, 12, 10]", "model: axes_dim=(8, 12, 10) sums to 30, not to head_dim=32"),
    ("model.num_attention_heads=5", "model: hidden_size=128 is not divisible by num_attention_h"),
    ("model.rotary_interleaved=false", "model.rotary_interleaved=false", "only true"),
    (
        (*TE, "model.apply_rope_fusion=true", "model.position_embedding_type=none"),
        "model.apply_rope_fusion=true with model.position_embedding_type=none: Megatron would",
    ),
    (
        (*TE, "model.apply_rope_fusion=true", "model.fused_qk_norm_rope=auto"),
        "model.fused_qk_norm_rope=auto with model.apply_rope_fusion=true: both claim",
    ),
    ("model.transformer_impl=transformer_engine", "model.transformer_impl=transformer_engine with"),
    ((*TE, "model.attention_backend=local"), "model.attention_backend=local switches all"),
    ("model.attention_backend=fused", "model.attention_backend=fused with model.transformer_impl"),
    ("model.apply_rope_fusion=true", "model.apply_rope_fusion=true with model.transformer_impl=lo"),
    (
        (*MXFP4, "model.first_last_layers_bf16=true", "model.num_layers_at_end_in_bf16=0"),
        "model.first_last_layers_bf16=true with model.transformer_impl=local",
    ),
    (
        (*TE, "precision.fp8=hybrid", "model.first_last_layers_bf16=true"),
        "model.first_last_layers_bf16=true with precision.fp8_recipe=delayed",
    ),
    (
        (*TE, *MXFP4, "model.first_last_layers_bf16=true"),
        "model.first_last_layers_bf16=true keeps 2 of 2 blocks in BF16",
    ),
    (
        (*GPU_MXFP6, "model.fused_qk_norm_rope=on", "model.fused_qkv_prologue=on"),
        "model.fused_qk_norm_rope=on with model.fused_qkv_prologue=on",
    ),
    (
        (*GPU_MXFP6, "model.fused_ln_pack=on", "model.fused_mlp=auto"),
        "model.fused_ln_pack=on without model.fused_qkv_prologue and model.fused_mlp",
    ),
    (
        (*GPU_MXFP6, "model.fused_mlp=on", "model.activation_func=erf_gelu"),
        "model.fused_mlp=on with model.activation_func=erf_gelu",
    ),
    (
        (*GPU_MXFP6, "model.fused_mlp=on", "precision.mx_backward_precision=bf16"),
        "model.fused_mlp=on with precision.mx_backward_precision=bf16",
    ),
    ("model.fused_ln_modulate=on", "model.fused_ln_modulate=on with device=cpu", "auto declines"),
    (
        ("device=h200", *FUSED_CHAINS, "model.fused_ln_pack=auto"),
        "model.fused_ln_pack=auto without MX linears of the local spec",
    ),
    (
        (*TE, *MXFP6, "model.fused_qkv_prologue=on"),
        "model.fused_qkv_prologue=on without the linears of the local spec",
    ),
    (
        ("model.recompute_granularity=selective", "model.recompute_modules=[mlp]"),
        "model.recompute_modules: 'mlp' cannot be recomputed alone",
    ),
    (
        ("model.scheduler_shift=3.0", "model.timestep_sampling_strategy=direct_uniform"),
        "model.scheduler_shift=3.0 with direct_uniform",
    ),
    ("model.recompute_granularity=full", "model.recompute_granularity=full without model.recomp"),
    # precision
    ("precision.fp4=e2m1", "precision.fp4=e2m1 without precision.fp4_recipe", "gemm_backend"),
    ((*MXFP4, "precision.fp6=e2m3"), "precision: fp4=e2m1, fp6=e2m3 exclude each other"),
    (
        (*TE, *MXFP6, "precision.fp8=hybrid"),
        "precision: fp8=hybrid, fp6=e2m3 exclude each other",
    ),
    ("precision.fp6=e2m3", "precision.gemm_backend is not set", "on cpu: emulated"),
    ((*MXFP6, "precision.gemm_backend=aiter"), "precision.gemm_backend=aiter with device=cpu"),
    (
        ("device=mi355x", "precision.fp6=e3m2", "precision.gemm_backend=aiter"),
        "precision.fp6=e3m2 with precision.gemm_backend=aiter",
    ),
    (
        (*MXFP4, "precision.mx_backward_precision=mxfp8"),
        "precision.mx_backward_precision=mxfp8 with transformer_impl=local",
    ),
    (
        (*TE, *MXFP4, "precision.mx_backward_precision=fp8"),
        "precision.mx_backward_precision=fp8 with transformer_impl=transformer_engine",
    ),
    ("precision.fp8=hybrid", "precision.fp8=hybrid, fp8_recipe=delayed with transformer_impl=loc"),
    (
        (*MXFP4, "precision.fp4_use_native_te_autocast=true"),
        "precision.fp4_use_native_te_autocast=true with transformer_impl=local",
    ),
    (
        (*MXFP6, "precision.mx_stochastic_rounding=true"),
        "precision.mx_stochastic_rounding=true without precision.fp4",
    ),
    (
        (*TE, *MXFP4, "precision.mx_hadamard=true", "precision.mx_weight_block_2d=true"),
        "precision.mx_hadamard=true with precision.mx_weight_block_2d=true",
    ),
    (
        (
            *MXFP4,
            "precision.mx_backward_precision=bf16",
            "precision.mx_stochastic_rounding=true",
        ),
        "precision.mx_stochastic_rounding=true with mx_backward_precision=bf16",
    ),
    (
        ("precision.params_dtype=float32", "precision.grad_reduce_in_bf16=true"),
        "precision.grad_reduce_in_bf16=true with precision.params_dtype=float32",
    ),
    (
        (*TE, "precision.fp8=e4m3", "precision.fp8_recipe=mxfp8"),
        "precision.fp8_recipe=mxfp8 with device=h200",
    ),
    # data
    ("data.kind=energon", "data.path=null with data.kind=energon", "mxtree data synth"),
    (("data.kind=energon", 'data.path=""'), "data.path=null with data.kind=energon"),
    ("data.vae_latent_mode=resample", "data.vae_scale=null with vae_latent_mode=resample"),
    ("data.vae_scale=0.3611", "data.vae_scale=0.3611 with vae_latent_mode=presampled"),
    ("data.image_size=100", "data.image_size=100 is no multiple of 16"),
    (
        (*ENERGON, "data.empty_encodings_path=/x"),
        "data.empty_encodings_path is set with model.cfg_dropout_prob=0",
    ),
    # schedule
    (
        "schedule.global_batch_size=12",
        "schedule.global_batch_size=12 is no multiple of micro_batch_size=4 x 2 ranks",
    ),
    ("schedule.te_rng_tracker=true", "schedule.te_rng_tracker=true with model.transformer_impl"),
    # optimizer
    ("optimizer.min_lr=1e-3", "optimizer.min_lr=0.001 is above optimizer.lr=0.0002"),
    ("optimizer.min_lr=1e-5", "optimizer.min_lr=1e-05 has no effect with lr_decay_style=constant"),
    (
        ("optimizer.lr_warmup_iters=10", "optimizer.lr_warmup_init=1e-3"),
        "optimizer.lr_warmup_init=0.001 is above optimizer.lr=0.0002",
    ),
    ("optimizer.lr_warmup_iters=100", "optimizer.lr_warmup_iters=100 is not below schedule.train"),
    ("optimizer.use_precision_aware_optimizer=true", "optimizer.use_precision_aware_optimizer=tr"),
    (
        (
            *TE,
            "optimizer.use_precision_aware_optimizer=true",
            "parallel.use_distributed_optimizer=false",
        ),
        "optimizer.use_precision_aware_optimizer=true with parallel.use_distributed_optimizer=fal",
    ),
    # parallel and launch
    (
        "parallel.tensor_model_parallel_size=2",
        "parallel.tensor_model_parallel_size=2 is not supported: each rank draws its own noise",
    ),
    ("parallel.pipeline_model_parallel_size=2", "parallel.pipeline_model_parallel_size=2 is not"),
    ("parallel.context_parallel_size=2", "parallel.context_parallel_size=2 is not supported"),
    ("parallel.sequence_parallel=true", "parallel.sequence_parallel=true is not supported"),
    (
        "parallel.overlap_param_gather=true",
        "parallel.overlap_param_gather=true with parallel.overlap_grad_reduce=false",
    ),
    (
        "parallel.distributed_backend=nccl",
        "parallel.distributed_backend=nccl with device=cpu",
        "there it is gloo",
    ),
    (
        ("device=h200", "launch.nproc_per_node=16", "schedule.global_batch_size=64"),
        "launch.nproc_per_node=16 with device=h200",
    ),
    ("parallel.gradient_accumulation_fusion=true", "parallel.gradient_accumulation_fusion=true w"),
    (
        'launch.environment={MXFLUX_GEMM_BACKEND: "aiter"}',
        "launch.environment: MXFLUX_GEMM_BACKEND belongs to the launcher (precision.gemm_backend)",
    ),
    (
        (*ENERGON, "data.num_workers=0", "data.val_num_workers=0", "data.prefetch_factor=4"),
        "data.prefetch_factor=4 has no effect without a loader process",
    ),
    (
        'launch.environment={"A; rm x": "1"}',
        "launch.environment: 'A; rm x' is no name of a variable",
    ),
    ("launch.slurm.partition=gpu --wrap", "launch.slurm.partition='gpu --wrap' is not one word"),
    ('launch.slurm.account="a\\nb"', "launch.slurm.account='a\\nb' is not one word"),
    ("launch.slurm.qos='\"high\"'", "launch.slurm.qos='\"high\"' is not one word"),
    ('launch.slurm.gpus_per_node=""', "launch.slurm.gpus_per_node='' is not one word"),
    (
        'launch.slurm.extra=["--exclude=n1", "--a\\nrm x"]',
        "launch.slurm.extra: '--a\\nrm x' is no option of sbatch",
    ),
    ("launch.slurm.extra=[rm]", "launch.slurm.extra: 'rm' is no option of sbatch"),
    # evaluation
    ("evaluation.interval=10", "evaluation.interval=10 without evaluation.iters or evaluation.sa"),
    ((*EVALUATION, "evaluation.iters=3"), "evaluation.iters=3 with evaluation.samples=64"),
    (
        (*EVALUATION, "evaluation.global_batch_size=12"),
        "evaluation.global_batch_size=12 is no multiple of micro_batch_size=4 x 2 ranks",
    ),
    (
        (*EVALUATION, "evaluation.samples=60"),
        "evaluation.samples=60 does not divide into micro-batches of 4 for 2 ranks x 1 workers: 4",
    ),
    # compile
    (
        (*TE, *MXFP4, "compile.enable=true"),
        "compile.enable=true with precision.fp4=e2m1 in TransformerEngine",
    ),
    (
        (*TE, *MXFP6, "compile.enable=true"),
        "compile.enable=true with precision.fp6=e2m3 in TransformerEngine",
    ),
    *(
        (
            (
                *GPU_MXFP6,
                "compile.enable=true",
                "model.fused_qkv_prologue=auto",
                "model.fused_mlp=auto",
                f"model.{key}=on",
            ),
            f"compile.enable=true with model.{key}=on: the chain runs in eager only",
        )
        for key in ("fused_qkv_prologue", "fused_mlp", "fused_ln_pack")
    ),
    (
        ("compile.enable=true", "compile.strategy=full_dit"),
        "compile.strategy=full_dit with model.transformer_impl=local",
    ),
    (
        (
            "compile.enable=true",
            "compile.strategy=whole_model",
            "parallel.overlap_grad_reduce=true",
            "parallel.overlap_param_gather=true",
        ),
        "compile.strategy=whole_model with parallel.overlap_param_gather=true",
    ),
    (
        (
            "compile.enable=true",
            "compile.strategy=stack",
            "model.recompute_granularity=full",
            "model.recompute_method=uniform",
            "model.recompute_num_layers=1",
        ),
        "compile.strategy=stack with model.recompute_granularity=full",
    ),
    # checkpoint, mlperf, probes
    *(
        (
            ("checkpoint.save_final=false", *limit),
            f"{limit[0]} with checkpoint.save_final=false",
        )
        for limit in (
            ("schedule.exit_interval=6",),
            ("schedule.exit_interval=6", "checkpoint.save_interval=4"),
            ("schedule.exit_duration_in_mins=5", "checkpoint.save_interval=4"),
        )
    ),
    (
        "checkpoint.no_save_optim=true",
        "checkpoint.no_save_optim=true with checkpoint.auto_resume=true",
    ),
    (
        (*MLPERF, "evaluation.interval=null", "evaluation.samples=null"),
        "mlperf.enable=true without",
    ),
    ((*MLPERF, "mlperf.submission_org=null"), "mlperf.enable=true without mlperf.submission_org"),
    ((*MLPERF, *MXFP6, "mlperf.ruleset=6.0.0"), "mlperf.ruleset=6.0.0 with precision.fp6=e2m3"),
    (
        ("probes.train_profile=true", "probes.profile_step_start=20"),
        "probes.profile_step_start=20 is not below probes.profile_step_end=12",
    ),
    (
        ("probes.train_profile=true", "probes.profile_rank=2"),
        "probes.profile_rank=2 with 2 ranks",
    ),
    # expect_overridden
    ("expect_overridden=[model.x]", "expect_overridden: unknown key 'model.x'"),
    ("expect_overridden=[data.kind]", "expect_overridden: data.kind is no argument of Megatron"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[1][:60])
def test_refused(faults: Faults, case: tuple[Any, ...]) -> None:
    overrides, fault, *more = case
    found = faults(overrides=[overrides] if isinstance(overrides, str) else overrides)
    matching = [line for line in found if fault in line]
    assert len(matching) == 1, found
    for word in more:
        assert any(word in line for line in found)


ALTERNATIVES: dict[type, Callable[[Any], Any]] = {
    bool: lambda value: not value,
    int: lambda value: value + 1,
    float: lambda value: value + 0.25,
}


def another(key: str) -> str:
    """A value of ``key`` that is not its default."""
    known = all_keys()[key]
    for value in known.allowed:
        if value not in {None, known.default}:
            return write_scalar(value)
    if type(known.default) in ALTERNATIVES:
        return write_scalar(ALTERNATIVES[type(known.default)](known.default))
    return {"text": "x", "integer": "1", "number": "0.5", "list of texts": "[core_attn]"}[
        known.type.removesuffix(" | null")
    ]


IDLE_KEYS = sorted({f"{entry.section}.{key}" for entry in IDLE for key in entry.keys})
AVAILABLE_ELSEWHERE = {
    # Keys that need a setting which other rules refuse alone: what makes them idle here.
    "compile.mode": ["compile.enable=true", "compile.backend=eager"],
    "checkpoint.keep": ["checkpoint.save_final=false"],
    "checkpoint.async_save": ["checkpoint.save_final=false"],
    "checkpoint.no_save_optim": ["checkpoint.save_final=false"],
    "evaluation.remainder": ["evaluation.interval=10", "evaluation.iters=2"],
}


@pytest.mark.parametrize("key", IDLE_KEYS)
def test_a_key_without_effect_is_refused(faults: Faults, key: str) -> None:
    extra = AVAILABLE_ELSEWHERE.get(key, [])
    found = faults(overrides=[*extra, f"{key}={another(key)}"])
    assert [line for line in found if f"{key}=" in line and "has no effect without" in line], found


def test_a_recipe_made_in_python_raises_value_error() -> None:
    with pytest.raises(ValueError, match=r"schedule\.global_batch_size=3 is no multiple"):
        Recipe.model_validate(
            {
                "name": "x",
                "device": "cpu",
                "launch": {"nproc_per_node": 2},
                "model": {"preset": "flux_tiny"},
                "data": {"kind": "digits"},
                "schedule": {"train_iters": 1, "micro_batch_size": 1, "global_batch_size": 3},
                "optimizer": {"lr": 1.0},
            }
        )


def test_29696_samples_on_shapes_of_the_benchmark(load_text: Load, faults: Faults) -> None:
    base = ["device=h200", "evaluation.interval=512", "evaluation.samples=29696"]
    for ranks, micro, fits in (
        (8, 64, True),
        (8, 32, True),
        (16, 32, True),
        (32, 32, True),
        (64, 16, True),
        (64, 32, False),
        (72, 32, False),
        (288, 8, False),
        (512, 8, False),
    ):
        shape = [
            "launch.nproc_per_node=8",
            f"launch.nodes={ranks // 8}",
            f"schedule.micro_batch_size={micro}",
            f"schedule.global_batch_size={ranks * micro}",
        ]
        if fits:
            load_text(overrides=[*base, *shape])
        else:
            assert "evaluation.samples=29696 does not divide" in faults(overrides=base + shape)[0]
