# SPDX-License-Identifier: Apache-2.0
"""One recipe: what it sets, or every value; and two recipes side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .tables import table

if TYPE_CHECKING:
    from mxflux.recipe import Loaded

FORMAT = 1


def values(loaded: Loaded) -> dict[str, Any]:
    """Every dotted key with its value, tuples as lists."""
    from mxflux.recipe.keys import all_keys
    from mxflux.recipe.values import value_of

    found = {key: value_of(loaded.recipe, key) for key in all_keys()}
    return {key: list(v) if isinstance(v, tuple) else v for key, v in found.items()}


def as_text(loaded: Loaded) -> str:
    """The keys that something sets, with what set them."""
    rows = [
        (key, written(value), str(loaded.origins[key]))
        for key, value in values(loaded).items()
        if loaded.origins[key].kind != "default"
    ]
    return "\n".join(table(("key", "value", "from"), rows))


def as_json(loaded: Loaded) -> dict[str, Any]:
    """Every key for machines."""
    origins = {key: str(origin) for key, origin in loaded.origins.items()}
    return {
        "format": FORMAT,
        "name": loaded.recipe.name,
        "values": values(loaded),
        "origins": origins,
    }


def written(value: Any) -> str:
    """A value as a recipe writes it."""
    from mxflux.recipe.dump import inline

    return inline(value)


def differences(left: Loaded, right: Loaded) -> list[tuple[str, Any, Any]]:
    """Keys with different values; the name of the run is not one."""
    ours, theirs = values(left), values(right)
    return [
        (key, ours[key], theirs[key])
        for key in ours
        if key not in {"name", "description"} and ours[key] != theirs[key]
    ]


def diff_as_text(rows: list[tuple[str, Any, Any]], left: Loaded, right: Loaded) -> str:
    """A table of the differences, with where each value comes from."""
    if not rows:
        return "the recipes say the same"
    cells = [
        (
            key,
            f"{written(ours)}  [{left.origins[key]}]",
            f"{written(theirs)}  [{right.origins[key]}]",
        )
        for key, ours, theirs in rows
    ]
    return "\n".join(table(("key", left.recipe.name, right.recipe.name), cells))


def diff_as_json(rows: list[tuple[str, Any, Any]]) -> dict[str, Any]:
    """The same for machines."""
    return {
        "format": FORMAT,
        "differences": [{"key": key, "left": ours, "right": theirs} for key, ours, theirs in rows],
    }
