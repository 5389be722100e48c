# SPDX-License-Identifier: Apache-2.0
"""What pydantic found, in the words of a recipe: place, value, what is allowed, what was meant."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from .errors import Problem
from .keys import all_keys, section_of
from .scalars import read_scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic_core import ErrorDetails

    from .nodes import Node, Position

Path = tuple[str | int, ...]

_YAML_1_1 = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
_EXPECTED = {
    "bool_type": "true or false",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping of keys",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "string_pattern_mismatch": "letters, digits, '.', '_' and '-' only, no more than 100",
}


def dotted(path: Sequence[str | int]) -> str:
    """The key that ``path`` leads to, without positions in a list."""
    return ".".join(step for step in path if isinstance(step, str))


def to_problem(error: ErrorDetails, root: Node) -> Problem:
    """The fault that one pydantic error stands for."""
    path: Path = error["loc"]
    if error["type"] == "extra_forbidden":
        return _unknown(path, root)
    if error["type"] == "missing":
        return _missing(path, root)
    key, value = dotted(path), error["input"]
    expected = _expected(error, key)
    problem = _at(root, path)
    return Problem(
        problem.file,
        problem.line,
        problem.column,
        f"{key}: expected {expected}, got {_shown(value)}",
        _hint(error["type"], key, value),
    )


def unknown_key_hint(key: str) -> str | None:
    """What a dotted key that does not exist may have been meant to be."""
    section, _, name = key.rpartition(".")
    known = list(section_of(section).model_fields) if section_of(section) else []  # type: ignore[union-attr]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    elsewhere = [other for other in all_keys() if other.rpartition(".")[2] == name]
    if elsewhere:
        return f"it belongs into {' or '.join(map(repr, elsewhere))}"
    return f"known here: {', '.join(known)}" if known else None


def _unknown(path: Path, root: Node) -> Problem:
    key = dotted(path)
    section, _, name = key.rpartition(".")
    node = root.at(path)
    place = (node.key or node.position) if node else root.position
    where = f" in section {section!r}" if section else ""
    return Problem(
        place.file, place.line, place.column, f"unknown key {name!r}{where}", unknown_key_hint(key)
    )


def _missing(path: Path, root: Node) -> Problem:
    key = dotted(path)
    place = _at(root, path[:-1])
    known = all_keys().get(key)
    if known is None:
        required = [
            k.name for k in all_keys().values() if k.required and k.name.startswith(key + ".")
        ]
        message, hint = f"section {key!r} is missing", f"it needs {', '.join(required)}"
    else:
        message, hint = f"{key} is missing", known.type
    return Problem(place.file, place.line, place.column, message, hint)


def _expected(error: ErrorDetails, key: str) -> str:
    if error["type"] == "literal_error":
        values = all_keys()[key].allowed
        shown = [_shown(value) if not isinstance(value, str) else value for value in values]
        return f"one of {', '.join(shown)}"
    wanted = _EXPECTED.get(error["type"])
    return error["msg"] if wanted is None else wanted.format(**error.get("ctx", {}))


def _hint(kind: str, key: str, value: Any) -> str | None:
    if kind == "literal_error":
        return _near_value(key, value)
    if not isinstance(value, str):
        return None
    if kind == "bool_type" and value.lower() in _YAML_1_1:
        return f"YAML 1.2 has no {value!r} for a truth value: write {_YAML_1_1[value.lower()]}"
    if kind in {"int_type", "float_type", "bool_type"} and not isinstance(read_scalar(value), str):
        return "it is a text: remove the quotes"
    return None


def _near_value(key: str, value: Any) -> str | None:
    known = all_keys()[key]
    allowed = known.allowed
    if value in (None, "") and not known.required:
        return f"leave the key out for {known.default}"
    if isinstance(value, bool) and {"on", "off"} <= set(allowed):
        return f"write {'on' if value else 'off'}"
    if isinstance(value, str):
        near = difflib.get_close_matches(value, [a for a in allowed if isinstance(a, str)], n=1)
        return f"did you mean {near[0]!r}?" if near else None
    if str(value) in allowed:
        return "put it in quotes"
    return None


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"the text {value!r}"
    if isinstance(value, dict):
        return "a mapping"
    return repr(value)


def _at(root: Node, path: Path) -> Position:
    """Where ``path`` is written, or the nearest mapping around it that is."""
    for length in range(len(path), -1, -1):
        node = root.at(path[:length])
        if node is not None:
            # A value left out stands nowhere; its key does.
            return node.key if node.value is None and node.key else node.position
    return root.position
