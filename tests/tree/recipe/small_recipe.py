# SPDX-License-Identifier: Apache-2.0
"""A small recipe, with keys changed past the rules, and what a run would build from it."""

from __future__ import annotations

import copy
from typing import Any

import torch

from mxflux.recipe import Recipe
from mxflux.recipe.effective import examine
from mxflux.recipe.effective.live import PLACES
from mxflux.recipe.megatron_arguments import ARGUMENTS, is_passed
from mxflux.recipe.nodes import Origin
from mxflux.recipe.rules import UNCHECKED
from mxflux.recipe.values import resolved_value
from mxflux.training.build import build_scheduler
from mxflux.training.configs import ddp_config, flux_config, optimizer_config

SMALL: dict[str, Any] = {
    "name": "small",
    "device": "cpu",
    "launch": {"nproc_per_node": 2},
    "model": {"preset": "flux_tiny"},
    "data": {"kind": "digits", "image_size": 64, "text_length": 8},
    "schedule": {"train_iters": 100, "micro_batch_size": 4, "global_batch_size": 8},
    "optimizer": {"lr": 2e-4},
}
TE = {"device": "h200", "model.transformer_impl": "transformer_engine"}


def recipe(changes: dict[str, Any] | None = None) -> Recipe:
    """The small recipe with ``changes`` by dotted key; its rules are not asked."""
    data = copy.deepcopy(SMALL)
    for key, value in (changes or {}).items():
        section, _, name = key.rpartition(".")
        (data.setdefault(section, {}) if section else data)[name] = value
    return Recipe.model_validate(data, context=UNCHECKED)


def origins(*keys: str) -> dict[str, Origin]:
    """Origins of keys as if a file had them."""
    return {key: Origin("file", "r.yaml", 1) for key in keys}


def holders(given: Recipe) -> dict[str, Any]:
    """The configs and the schedule that the trainer builds, without a model."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    return {
        "config": flux_config(given),
        "ddp": ddp_config(given),
        "optimizer": optimizer_config(given),
        "scheduler": build_scheduler(given, torch.optim.AdamW([parameter])),
    }


def arrives(given: Recipe, key: str) -> bool:
    """Whether every stage that knows ``key`` has the value of the recipe, and none other changed.

    Raises EffectiveError for a key that changed.
    """
    report = examine(given, {}, holders(given), world_size=2)
    report.check()
    row = next(row for row in report.rows if row.key == key)
    stages = []
    if key in ARGUMENTS and is_passed(given, key):
        stages += [row.arguments, row.validated]
    if key in PLACES:
        stages.append(row.live)
    wanted = resolved_value(given, key)
    wanted = list(wanted) if isinstance(wanted, tuple) else wanted
    return bool(stages) and stages == [wanted] * len(stages)
