# SPDX-License-Identifier: Apache-2.0
"""``section.key=value`` of a command line, read as a file would be."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .errors import Problem
from .nodes import Node, Origin, Position, merge
from .reader import Reader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COMMAND_LINE = "command line"
_OVERRIDE = re.compile(r"(?P<key>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)=(?P<value>.*)", re.DOTALL)


def apply_overrides(
    root: Node, overrides: Sequence[str], environ: Mapping[str, str], problems: list[Problem]
) -> Node:
    """``root`` with each override on top, the last one of a key winning."""
    for text in overrides:
        node = _read(text, environ, problems)
        if node is not None:
            root = merge(root, node)
    return root


def _read(text: str, environ: Mapping[str, str], problems: list[Problem]) -> Node | None:
    shown = f"override {text!r}"
    match = _OVERRIDE.fullmatch(text)
    if match is None:
        hint = "write section.key=value, as optimizer.lr=2e-4"
        problems.append(Problem(shown, 0, 0, "not an override", hint))
        return None
    reader = Reader(match["value"], shown, environ, kind=COMMAND_LINE)
    value = reader.read()
    # In the message the column counts in the whole argument.
    offset = match.start("value")
    problems += [_shift(problem, offset) for problem in reader.problems]
    if value is None:
        if not reader.problems:
            message = f"{match['key']} has no value"
            problems.append(Problem(shown, 1, offset + 1, message, "write null for none"))
        return None
    if match["key"] == "base":
        problems.append(Problem(shown, 1, 1, "base: can only stand in a file"))
        return None
    return _nest(match["key"].split("."), _moved(value, offset), shown)


def _shift(problem: Problem, offset: int) -> Problem:
    column = problem.column + (offset if problem.line == 1 else 0)
    return Problem(problem.file, problem.line, column, problem.message, problem.hint)


def _moved(node: Node, offset: int) -> Node:
    position = Position(node.position.file, node.position.line, node.position.column + offset)
    value = node.value
    if isinstance(value, list):
        value = [_moved(item, offset) for item in value]
    elif isinstance(value, dict):
        value = {key: _moved(item, offset) for key, item in value.items()}
    return Node(value, position, node.origin, position)


def _nest(keys: list[str], value: Node, shown: str) -> Node:
    start = Position(shown, 1, 1)
    for key in reversed(keys):
        value = Node(
            {key: Node(value.value, value.position, value.origin, start)},
            value.position,
            Origin(COMMAND_LINE),
        )
    return value
