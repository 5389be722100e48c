# SPDX-License-Identifier: Apache-2.0
"""What training tests run on each rank in place of the trainer's main."""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import TYPE_CHECKING, Any

import torch

from mxflux.recipe.loading import load
from mxflux.training.process import started_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def trainer_of(run: Path, fake_world: int | None = None) -> Iterator[Any]:
    """The Trainer of a run directory in this process."""
    recipe = load(run / "recipe.yaml").recipe
    with started_process(
        recipe.device,
        transformer_impl=recipe.model.transformer_impl,
        backend=recipe.parallel.distributed_backend,
        timeout_minutes=1,
        fake_world=fake_world,
    ) as process:
        from mxflux.training.trainer import Trainer

        yield Trainer(recipe, run, process, recipe_sha256=hashlib.sha256(b"").hexdigest())


def answer(run: Path, value: Any) -> None:
    """Leave what a test asks for."""
    (run / "answer.json").write_text(json.dumps(value), "utf-8")
