# SPDX-License-Identifier: Apache-2.0
"""TensorBoard and Weights & Biases, on top of metrics.jsonl and only where the recipe asks."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from .errors import SetupError

if TYPE_CHECKING:
    from pathlib import Path

    from mxflux.recipe.schema import Recipe

FOLDER = "tensorboard"


class Trackers:
    """Forwards numbers to the trackers that are on; raises SetupError when one is not installed."""

    def __init__(self, recipe: Recipe, run_dir: Path, *, enabled: bool) -> None:
        self._writer = self._run = None
        # On every rank, so that all of them stop with the same message.
        if recipe.logging.tensorboard:
            _require("tensorboard", "logging.tensorboard")
        if recipe.logging.wandb_project is not None:
            _require("wandb", "logging.wandb_project")
        if not enabled:
            return
        if recipe.logging.tensorboard:
            self._writer = _tensorboard(run_dir / FOLDER)
        if recipe.logging.wandb_project is not None:
            self._run = _wandb(recipe, run_dir)

    def write(self, group: str, step: int, fields: dict[str, Any]) -> None:
        """Send every number of ``fields`` as group/name."""
        numbers = {
            f"{group}/{name}": value
            for name, value in fields.items()
            if isinstance(value, (int, float)) and name != "step"
        }
        if self._writer is not None:
            for name, value in numbers.items():
                self._writer.add_scalar(name, value, step)
        if self._run is not None:
            self._run.log(numbers, step=step)

    def close(self) -> None:
        """Flush and close."""
        if self._writer is not None:
            self._writer.close()
        if self._run is not None:
            self._run.finish()


def _require(package: str, key: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise SetupError(f"{key} needs the package {package}: install it, or unset the key")


def _tensorboard(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))


def _wandb(recipe: Recipe, run_dir: Path) -> Any:
    import wandb

    settings = recipe.logging
    return wandb.init(
        project=settings.wandb_project,
        entity=settings.wandb_entity,
        mode=settings.wandb_mode,
        name=recipe.name,
        dir=str(run_dir),
        resume="allow",
        id=f"{recipe.name}-{run_dir.resolve().name}",
        config=recipe.model_dump(mode="json"),
    )
