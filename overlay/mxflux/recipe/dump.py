# SPDX-License-Identifier: Apache-2.0
"""A recipe as YAML with every key, in the order of the schema, one value a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .reader import RESOLVED_HEADER
from .scalars import write_scalar
from .schema.base import Section

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .nodes import Origin
    from .schema import Recipe


def dump(recipe: Recipe, origins: Mapping[str, Origin] | None = None) -> bytes:
    """UTF-8 text that loads to ``recipe``; with ``origins`` each value's own as a comment."""
    lines = [] if origins is None else [RESOLVED_HEADER]
    for key, depth, name, text in _lines(recipe, "", 0):
        comment = ""
        if origins is not None and key in origins:
            comment = f"  # @ {origins[key]}"
        lines.append(f"{'  ' * depth}{name}:{text}{comment}")
    return ("\n".join(lines) + "\n").encode()


def _lines(section: Section, prefix: str, depth: int) -> Iterator[tuple[str, int, str, str]]:
    for name in type(section).model_fields:
        value, key = getattr(section, name), f"{prefix}{name}"
        if isinstance(value, Section):
            yield key, depth, name, ""
            yield from _lines(value, f"{key}.", depth + 1)
        else:
            yield key, depth, name, f" {inline(value)}"


def inline(value: Any) -> str:
    """A value on one line, as YAML."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(inline, value))}]"
    if isinstance(value, dict):
        pairs = (f"{inline(key)}: {inline(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    return write_scalar(value)
