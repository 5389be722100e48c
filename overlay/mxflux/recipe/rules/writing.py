# SPDX-License-Identifier: Apache-2.0
"""Rules of `checkpoint`, `mlperf` and `probes`: what a run writes must be of use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .finding import Finding
from .schedule import world_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxflux.recipe.schema import Recipe


def _resume(r: Recipe) -> Iterator[Finding]:
    c = r.checkpoint
    if c.no_save_optim and c.auto_resume:
        message = "checkpoint.no_save_optim=true with checkpoint.auto_resume=true"
        hint = "such a checkpoint cannot be resumed from: set auto_resume: false"
        yield Finding("checkpoint.no_save_optim", message, hint)


def _mlperf(r: Recipe) -> Iterator[Finding]:
    m = r.mlperf
    if not m.enable:
        return
    if r.evaluation.interval is None:
        message = "mlperf.enable=true without evaluation.interval"
        yield Finding("mlperf.enable", message, "the benchmark stops at a validation loss")
    for key in ("submission_org", "submission_platform", "train_samples"):
        if not getattr(m, key):
            message = f"mlperf.enable=true without mlperf.{key}"
            yield Finding(f"mlperf.{key}", message, "the log has to state it")
    if r.precision.fp6 and m.ruleset == "6.0.0":
        message = f"mlperf.ruleset=6.0.0 with precision.fp6={r.precision.fp6}"
        yield Finding("mlperf.ruleset", message, "mxfp6 can be stated from 6.1.0 on")


def _probes(r: Recipe) -> Iterator[Finding]:
    p, ranks = r.probes, world_size(r)
    if not p.train_profile:
        return
    if p.profile_step_start >= p.profile_step_end:
        message = f"probes.profile_step_start={p.profile_step_start} is not below "
        yield Finding(
            "probes.profile_step_end", f"{message}probes.profile_step_end={p.profile_step_end}"
        )
    if p.profile_rank >= ranks:
        message = f"probes.profile_rank={p.profile_rank} with {ranks} ranks"
        yield Finding("probes.profile_rank", message, f"0 to {ranks - 1}")


RULES = (_resume, _mlperf, _probes)
