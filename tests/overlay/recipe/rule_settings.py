# SPDX-License-Identifier: Apache-2.0
"""Settings that many rules are about, and how a recipe is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conftest import Faults

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


Case = tuple[Any, ...]
"""Overrides (one or several), the fault that they are, and words of the faults beside it."""


def check_refused(faults: Faults, case: Case) -> None:
    """Assert that one fault, and only one, says what is wrong."""
    overrides, fault, *more = case
    found = faults(overrides=[overrides] if isinstance(overrides, str) else overrides)
    matching = [line for line in found if fault in line]
    assert len(matching) == 1, found
    for word in more:
        assert any(word in line for line in found)


def name_of(case: Case) -> str:
    """The fault, for the name of a test."""
    return str(case[1][:60])
