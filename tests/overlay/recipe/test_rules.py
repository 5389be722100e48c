# SPDX-License-Identifier: Apache-2.0
"""Rules between keys: what they accept, keys without effect, the shapes of the benchmark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from rule_settings import (
    ENERGON,
    EVALUATION,
    FUSED_CHAINS,
    GPU_MXFP6,
    MLPERF,
    MXFP4,
    MXFP6,
    RESAMPLE,
    TE,
)

from mxflux.recipe import Recipe
from mxflux.recipe.keys import all_keys
from mxflux.recipe.rules.idle import IDLE
from mxflux.recipe.scalars import write_scalar

if TYPE_CHECKING:
    from conftest import Faults, Load

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
