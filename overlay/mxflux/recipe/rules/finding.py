# SPDX-License-Identifier: Apache-2.0
"""Run all rules over a recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mxflux.recipe.schema import Recipe

UNCHECKED: dict[str, Any] = {"unchecked": True}
"""Validation context under which a Recipe is built without its rules."""


@dataclass(frozen=True)
class Finding:
    """A key whose value does not go with the others; the message names field and value."""

    key: str
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        return self.message + (f" ({self.hint})" if self.hint else "")


Rule = Callable[["Recipe"], Iterator[Finding]]


def find_problems(recipe: Recipe) -> list[Finding]:
    """Everything that speaks against ``recipe``. A rule that asks for an unknown value is left
    out (see ``mxflux.recipe.view``).
    """
    from .catalog import RULES

    return [finding for rule in RULES for finding in _run(rule, recipe)]


def _run(rule: Rule, recipe: Recipe) -> list[Finding]:
    from mxflux.recipe.view import UnknownValueError

    try:
        return list(rule(recipe))
    except UnknownValueError:
        return []
