# SPDX-License-Identifier: Apache-2.0
"""A recipe of which some keys are known to be wrong: rules that ask for those are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from .schema.base import Section

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from .schema import Recipe


class UnknownValueError(Exception):
    """A rule asked for a key that is reported already."""


class _View:
    def __init__(self, section: Section, prefix: str, invalid: AbstractSet[str]) -> None:
        self._section = section
        self._prefix = prefix
        self._invalid = invalid

    def __getattr__(self, name: str) -> Any:
        key = f"{self._prefix}{name}"
        if key in self._invalid:
            raise UnknownValueError(key)
        value = getattr(self._section, name)
        if callable(value):
            raise AttributeError(f"rules read keys, not {key}()")
        if isinstance(value, Section):
            return _View(value, f"{key}.", self._invalid)
        return value


def view(recipe: Recipe, invalid: AbstractSet[str]) -> Recipe:
    """``recipe`` for the eyes of a rule: UnknownValueError for each key in ``invalid``."""
    return cast("Recipe", _View(recipe, "", invalid))
