# SPDX-License-Identifier: Apache-2.0
"""The schema as a flat list of dotted keys: what exists, its type, default and description."""

from __future__ import annotations

import types
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from .schema import Recipe
from .schema.base import Section


@dataclass(frozen=True)
class Key:
    """One key of a recipe. ``allowed``: its values where it has a closed list of them."""

    name: str
    type: str
    required: bool
    default: Any
    description: str
    allowed: tuple[Any, ...]


@cache
def all_keys() -> dict[str, Key]:
    """Every key that holds a value, by dotted name, in the order of the schema."""
    return {key.name: key for key in _walk(Recipe, "")}


@cache
def section_of(dotted: str) -> type[Section] | None:
    """The section at a dotted name ("" is the recipe), or None."""
    model: type[Section] = Recipe
    for name in filter(None, dotted.split(".")):
        field = model.model_fields.get(name)
        if field is None or not _is_section(field.annotation):
            return None
        model = field.annotation  # type: ignore[assignment]
    return model


def _walk(model: type[Section], prefix: str) -> list[Key]:
    found: list[Key] = []
    for name, field in model.model_fields.items():
        annotation: Any = field.annotation
        if _is_section(annotation):
            found += _walk(annotation, f"{prefix}{name}.")
            continue
        required = field.is_required()
        default = None if required else field.get_default(call_default_factory=True)
        description = " ".join((field.description or "").split())
        words, allowed = describe(annotation)
        found.append(Key(f"{prefix}{name}", words, required, default, description, allowed))
    return found


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


_WORDS = {int: "integer", float: "number", str: "text", bool: "true or false"}


def describe(annotation: Any) -> tuple[str, tuple[Any, ...]]:
    """Words for a type, and its values where they are listed."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return describe(get_args(annotation)[0])
    if origin is Literal:
        allowed = get_args(annotation)
        return " | ".join(map(str, allowed)), allowed
    if origin in {Union, types.UnionType}:
        inner = next(part for part in get_args(annotation) if part is not type(None))
        words, allowed = describe(inner)
        return f"{words} | null", (*allowed, None) if allowed else ()
    if origin is tuple:
        return f"list of {describe(get_args(annotation)[0])[0]}s", ()
    if origin is dict:
        return "mapping of texts", ()
    return _WORDS[annotation], ()
