# SPDX-License-Identifier: Apache-2.0
"""The A/A envelope: how far apart runs of one recipe lie that differ in nothing but their seed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .run_files import flat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .run_files import RunFiles

#: Keys that two runs of an A/A pair may differ in.
FREE = frozenset({"name", "description", "schedule.seed"})
#: Neighbours on each side, as a share of all points, whose spread counts at a point as well: two
#: curves that cross are not closer to each other for it.
_REACH = 0.1


def recipe_difference(first: RunFiles, other: RunFiles) -> dict[str, tuple[Any, Any]]:
    """Dotted keys whose values differ, with both; name and description do not count."""
    one, two = flat(first.recipe), flat(other.recipe)
    keys = [key for key in (*one, *(k for k in two if k not in one))
            if key not in {"name", "description"}]  # fmt: skip
    return {k: (one.get(k), two.get(k)) for k in keys if one.get(k) != two.get(k)}


def is_repetition(first: RunFiles, other: RunFiles) -> bool:
    """Whether both ran one recipe on one tree, with another seed at most."""
    if not first.recipe or not other.recipe:
        return False
    same_tree = first.record.get("tree_digest") == other.record.get("tree_digest")
    return same_tree and set(recipe_difference(first, other)) <= FREE


def half_width(losses: Sequence[Sequence[float]]) -> list[float]:
    """Greatest distance of two of the runs near each point, at least two runs of equal length."""
    count = len(losses[0])
    apart = []
    for values in zip(*losses, strict=True):
        finite = [value for value in values if math.isfinite(value)]
        apart.append(max(finite) - min(finite) if finite else math.inf)
    reach = max(1, round(_REACH * count))
    return [max(apart[max(0, i - reach) : i + reach + 1]) for i in range(count)]


def centre(losses: Sequence[Sequence[float]]) -> list[float]:
    """Mean of the runs at each point."""
    return [math.fsum(values) / len(values) for values in zip(*losses, strict=True)]
