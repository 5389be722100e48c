# SPDX-License-Identifier: Apache-2.0
"""Nodes into a Recipe: types first, then the rules between keys, all faults in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from .errors import Problem
from .keys import all_keys
from .messages import dotted, to_problem
from .nodes import BROKEN
from .rules import UNCHECKED, find_problems
from .schema import Recipe
from .view import view

if TYPE_CHECKING:
    from .nodes import Node

STAND_INS: dict[str, Any] = {
    "name": "unnamed",
    "device": "h200",
    "model.preset": "flux_12b",
    "data.kind": "mock",
    "schedule.train_iters": 1,
    "schedule.micro_batch_size": 1,
    "schedule.global_batch_size": 1,
    "optimizer.lr": 1.0,
}
"""Something for each required key, for the rules that do not ask for it."""


def validate(root: Node, problems: list[Problem]) -> Recipe | None:
    """The recipe, or None when there is any fault; faults go to ``problems``."""
    data = root.plain()
    broken = {key for key, node in root.leaves() if node.origin is BROKEN}
    invalid = set(broken)
    for key in broken:
        _put(data, key)
    recipe, errors = _try(data)
    for error in errors:
        key = dotted(error["loc"])
        if key not in broken:
            problems.append(to_problem(error, root))
        invalid.add(key)
    if recipe is None:
        recipe = _repaired(data, invalid)
    if recipe is not None:
        findings = find_problems(view(recipe, invalid))
        problems += [_located(f.key, f.message, f.hint, root) for f in findings]
    return None if problems else recipe


def _try(data: Any) -> tuple[Recipe | None, list[Any]]:
    try:
        return Recipe.model_validate(data, context=UNCHECKED), []
    except ValidationError as error:
        return None, error.errors(include_url=False)


def _repaired(data: Any, invalid: set[str]) -> Recipe | None:
    """The recipe with each wrong value replaced; sections that are wrong as a whole left out."""
    invalid |= {key for key in all_keys() for bad in tuple(invalid) if key.startswith(f"{bad}.")}
    for key in sorted(invalid):
        _put(data, key)
    recipe, _ = _try(data)
    return recipe


def _put(data: Any, key: str) -> None:
    """Set ``key`` to its stand-in, or take it out where the schema has a default."""
    *sections, name = key.split(".")
    for section in sections:
        if not isinstance(data.get(section), dict):
            data[section] = {}
        data = data[section]
    if key in STAND_INS:
        data[name] = STAND_INS[key]
    else:
        data.pop(name, None)


def _located(key: str, message: str, hint: str | None, root: Node) -> Problem:
    path = key.split(".")
    for length in range(len(path), -1, -1):
        node = root.at(path[:length])
        if node is not None:
            place = node.position
            return Problem(place.file, place.line, place.column, message, hint)
    raise AssertionError("the empty path leads to the root")
