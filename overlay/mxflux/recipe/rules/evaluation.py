# SPDX-License-Identifier: Apache-2.0
"""Rules of `evaluation`: a size, and samples that the ranks can share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .finding import Finding
from .schedule import world_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxflux.recipe.schema import Recipe


def _amount(r: Recipe) -> Iterator[Finding]:
    e = r.evaluation
    if e.interval is None:
        return
    if e.iters is None and e.samples is None:
        message = f"evaluation.interval={e.interval} without evaluation.iters or evaluation.samples"
        yield Finding("evaluation.interval", message, "set one of them")
    if e.iters is not None and e.samples is not None:
        message = f"evaluation.iters={e.iters} with evaluation.samples={e.samples}"
        yield Finding("evaluation.samples", message, "set one of them")


def _batches(r: Recipe) -> Iterator[Finding]:
    e, ranks = r.evaluation, world_size(r)
    if e.interval is None:
        return
    micro, width = _micro_batch_size(r), e.global_batch_size or r.schedule.global_batch_size
    if width % (micro * ranks):
        yield Finding(
            "evaluation.global_batch_size",
            f"evaluation.global_batch_size={width} is no multiple of micro_batch_size={micro} x "
            f"{ranks} ranks",
            "null means the value of training",
        )


def _coverage(r: Recipe) -> Iterator[Finding]:
    """29,696 samples on 64 ranks with 32 each: refused, unless the remainder has a meaning."""
    e, ranks = r.evaluation, world_size(r)
    if e.interval is None or e.samples is None or e.remainder != "refuse":
        return
    micro, workers = _micro_batch_size(r), max(1, r.data.val_num_workers)
    left = e.samples % (micro * workers * ranks)
    if left:
        yield Finding(
            "evaluation.samples",
            f"evaluation.samples={e.samples} does not divide into micro-batches of {micro} for "
            f"{ranks} ranks x {workers} workers: {left} are left over",
            "choose sizes that divide, or set remainder: pad or mask",
        )


def _micro_batch_size(r: Recipe) -> int:
    return r.evaluation.micro_batch_size or r.schedule.micro_batch_size


RULES = (_amount, _batches, _coverage)
