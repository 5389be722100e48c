# SPDX-License-Identifier: Apache-2.0
"""Rules of `schedule`: batches that divide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxflux.recipe.schema import Recipe


def world_size(r: Recipe) -> int:
    """Ranks, all of them data-parallel."""
    return r.launch.nproc_per_node * r.launch.nodes


def _batches(r: Recipe) -> Iterator[Finding]:
    s, ranks = r.schedule, world_size(r)
    if s.global_batch_size % (s.micro_batch_size * ranks):
        yield Finding(
            "schedule.global_batch_size",
            f"schedule.global_batch_size={s.global_batch_size} is no multiple of "
            f"micro_batch_size={s.micro_batch_size} x {ranks} ranks",
            "ranks = launch.nproc_per_node x launch.nodes",
        )


def _te_tracker(r: Recipe) -> Iterator[Finding]:
    if r.schedule.te_rng_tracker and r.model.transformer_impl == "local":
        message = "schedule.te_rng_tracker=true with model.transformer_impl=local"
        yield Finding("schedule.te_rng_tracker", message, "it is TransformerEngine's")


def _exits(r: Recipe) -> Iterator[Finding]:
    """A limit that ends a run before its last step must not throw away what it trained."""
    if r.checkpoint.save_final:
        return
    interval, saves = r.schedule.exit_interval, r.checkpoint.save_interval
    limits = {
        "exit_interval": interval if saves is None or (interval or 0) % saves else None,
        "exit_duration_in_mins": r.schedule.exit_duration_in_mins,
    }
    for name, value in limits.items():
        if value is not None:
            message = f"schedule.{name}={value} with checkpoint.save_final=false"
            hint = "it would stop without saving; set checkpoint.save_final: true"
            yield Finding(f"schedule.{name}", message, hint)


RULES = (_batches, _te_tracker, _exits)
