# SPDX-License-Identifier: Apache-2.0
"""Requested = effective, for a run on many ranks: examined once, refused everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from mxflux.recipe.effective import EffectiveError, examine
from mxflux.recipe.effective.arguments import ArgumentsError

from .errors import CheckError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mxflux.recipe.nodes import Origin
    from mxflux.recipe.schema import Recipe

    from .build import Built
    from .process import Process

FILE = "effective.json"


def require_effective(
    recipe: Recipe, origins: Mapping[str, Origin], built: Built, process: Process, run_dir: Path
) -> None:
    """Write RUN/effective.json and raise CheckError, on every rank, for a key not in effect.

    The first rank compares recipe, Megatron's arguments, what its validate_args makes of them and
    the live objects; the others wait for its verdict.
    """
    verdict: list[str | None] = [None]
    if process.is_first:
        verdict[0] = _problem(recipe, origins, built, process, run_dir)
    if process.world_size > 1 and not process.fake:
        torch.distributed.broadcast_object_list(verdict, src=0, device=process.device)
    if verdict[0] is not None:
        raise CheckError(verdict[0])


def _problem(
    recipe: Recipe, origins: Mapping[str, Origin], built: Built, process: Process, run_dir: Path
) -> str | None:
    live = {
        "config": built.config,
        "ddp": built.ddp.ddp_config,
        "optimizer": built.optimizer_config,
        "scheduler": built.scheduler,
    }
    try:
        report = examine(recipe, origins, live, world_size=process.world_size)
        if not process.fake:
            report.write(run_dir / FILE)
        report.check()
    except (ArgumentsError, EffectiveError) as error:
        return str(error)
    return None
