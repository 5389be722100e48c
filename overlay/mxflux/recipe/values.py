# SPDX-License-Identifier: Apache-2.0
"""The value of a dotted key, and what it stands for where null means a preset's or a device's."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from .schema.recipe import ARCHITECTURE_KEYS

if TYPE_CHECKING:
    from .schema import Recipe


def value_of(recipe: Recipe, key: str) -> Any:
    """The value as the recipe has it."""
    return reduce(getattr, key.split("."), recipe)


def resolved_value(recipe: Recipe, key: str) -> Any:
    """The value that takes effect: the preset's size, the device's collectives."""
    value = value_of(recipe, key)
    section, _, name = key.partition(".")
    if value is not None:
        return value
    if section == "model" and name in ARCHITECTURE_KEYS:
        return getattr(recipe.architecture, name)
    if key == "parallel.distributed_backend":
        return "gloo" if recipe.device == "cpu" else "nccl"
    return None
