# SPDX-License-Identifier: Apache-2.0
"""Rules of `compile`, `checkpoint`, `mlperf`, `probes` and `expect_overridden`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rule_settings import GPU_MXFP6, MLPERF, MXFP4, MXFP6, TE, Case, check_refused, name_of

if TYPE_CHECKING:
    from conftest import Faults

REFUSED: list[Case] = [
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


@pytest.mark.parametrize("case", REFUSED, ids=name_of)
def test_refused(faults: Faults, case: Case) -> None:
    check_refused(faults, case)
