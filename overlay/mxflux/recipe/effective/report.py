# SPDX-License-Identifier: Apache-2.0
"""The four values of every key side by side, and whether the one asked for is the one in effect."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mxflux.recipe.keys import all_keys
from mxflux.recipe.megatron_arguments import ARGUMENTS, is_concerned, is_passed, megatron_arguments
from mxflux.recipe.nodes import DEFAULT, Origin
from mxflux.recipe.values import resolved_value

from . import arguments as megatron
from .live import live_values
from .plain import plain, short_dtype

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from pathlib import Path

    from mxflux.recipe.schema import Recipe

LEFT_OPEN = frozenset({"model.recompute_modules"})
"""Keys whose null leaves a choice to Megatron's config rather than to its arguments."""
DTYPES = frozenset(
    f"optimizer.{name}_dtype" for name in ("main_params", "main_grads", "exp_avg", "exp_avg_sq")
)
"""Keys that Megatron's arguments turn from a name into a dtype of torch."""


class EffectiveError(ValueError):
    """A requested value is not the one in effect; names keys, values, origin and the way out."""


@dataclass(frozen=True)
class Row:
    """One key. null: the stage does not know the key.

    status: ok, default (nobody asked), overridden, or expected (overridden, and the recipe says
    so).
    """

    key: str
    requested: Any
    arguments: Any
    validated: Any
    live: Any
    origin: str
    status: str


@dataclass(frozen=True)
class EffectiveReport:
    """All rows; ``unchecked`` says why Megatron's own checks were not run, if they were not."""

    rows: tuple[Row, ...]
    unchecked: str | None = None

    @property
    def overridden(self) -> tuple[Row, ...]:
        """Keys that changed without the recipe expecting it."""
        return tuple(row for row in self.rows if row.status == "overridden")

    def check(self) -> None:
        """Raise EffectiveError when a requested key is not in effect."""
        lines = [
            f"{row.key}: requested {row.requested!r} ({row.origin}), {_changed(row)}"
            for row in self.overridden
        ]
        if lines:
            raise EffectiveError(
                f"{len(lines)} requested key(s) not in effect:\n  "
                + "\n  ".join(lines)
                + "\nask for what can be had, or list the key under expect_overridden"
            )

    def to_json(self) -> list[dict[str, Any]]:
        """The rows for effective.json."""
        rows = [asdict(row) for row in self.rows]
        if self.unchecked:
            note = Row("(validate_args)", None, None, None, None, self.unchecked, "unchecked")
            rows.append(asdict(note))
        return rows

    def write(self, path: Path) -> None:
        """Write the rows to ``path``, whole or not at all."""
        aside = path.with_name(f".{path.name}.new")
        aside.write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")
        aside.replace(path)


def examine(
    recipe: Recipe,
    origins: Mapping[str, Origin],
    holders: Mapping[str, Any],
    *,
    world_size: int,
) -> EffectiveReport:
    """Compare ``recipe`` with Megatron's arguments and with the objects that a run built.

    holders: config (FluxConfig), ddp, optimizer (their configs) and scheduler; what is missing is
    not compared. Raises ArgumentsError when Megatron refuses the arguments.
    """
    passed = megatron_arguments(recipe)
    args, unchecked = None, None
    if megatron.is_available():
        args = megatron.validated(passed, world_size)
    else:
        unchecked = "this Megatron-LM has no megatron.training"
    live = live_values(recipe, holders)
    rows = [_row(recipe, key, origins, passed, args, live) for key in all_keys()]
    return EffectiveReport(tuple(rows), unchecked)


def _row(
    recipe: Recipe,
    key: str,
    origins: Mapping[str, Origin],
    passed: Mapping[str, Any],
    args: argparse.Namespace | None,
    live: Mapping[str, Any],
) -> Row:
    requested = plain(resolved_value(recipe, key))
    stages = _arguments(recipe, key, passed, args)
    if key in live:
        stages["live"] = live[key]
    same = all(value == requested for value in stages.values())
    if requested is None and _is_left_open(key):
        same = True
    origin = origins.get(key, DEFAULT)
    values = {name: stages.get(name) for name in ("arguments", "validated", "live")}
    status = _status(recipe, key, origin, same)
    return Row(key, requested, **values, origin=str(origin), status=status)


def _arguments(
    recipe: Recipe, key: str, passed: Mapping[str, Any], args: argparse.Namespace | None
) -> dict[str, Any]:
    """What Megatron is told, and what it makes of it, in the words of a recipe."""
    argument = ARGUMENTS.get(key)
    if argument is None or not is_concerned(recipe, key):
        return {}
    stages = {}
    if is_passed(recipe, key):
        stages["arguments"] = plain(argument.decode(passed[argument.dest]))
    if hasattr(args, argument.dest):  # not in releases that lack the argument: there it is off
        read = short_dtype if key in DTYPES else plain
        stages["validated"] = read(argument.decode(getattr(args, argument.dest)))
    return stages


def _is_left_open(key: str) -> bool:
    return key in LEFT_OPEN or (key in ARGUMENTS and ARGUMENTS[key].left_open)


def _status(recipe: Recipe, key: str, origin: Origin, same: bool) -> str:
    if not same:
        return "expected" if key in recipe.expect_overridden else "overridden"
    return "default" if origin.kind == "default" else "ok"


def _changed(row: Row) -> str:
    stages = (
        ("Megatron's arguments", row.arguments),
        ("Megatron's validate_args", row.validated),
        ("the built model, DDP or optimizer", row.live),
    )
    differing = [(name, value) for name, value in stages if value != row.requested]
    # null stands for a stage that does not know the key, unless nothing else differs.
    said = [item for item in differing if item[1] is not None] or differing
    return "but " + ", ".join(f"{name}: {value!r}" for name, value in said)
