# SPDX-License-Identifier: Apache-2.0
"""A recipe file and the files it builds on, read and merged."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import Problem
from .nodes import Node, merge
from .reader import Reader

if TYPE_CHECKING:
    from collections.abc import Mapping

NOT_INHERITED = ("name", "description", "base")
"""Keys that say something about the one file they stand in."""


def read_with_bases(
    path: Path, environ: Mapping[str, str], problems: list[Problem], chain: tuple[Path, ...] = ()
) -> Node | None:
    """The mapping of ``path`` over that of its ``base:``, and so on; faults go to ``problems``."""
    shown = display(path)
    text = _read_text(path, shown, problems)
    if text is None:
        return None
    reader = Reader(text, shown, environ)
    root = reader.read()
    problems += reader.problems
    if root is None or not isinstance(root.value, dict):
        if not reader.problems:
            problems.append(Problem(shown, 1, 1, "no recipe: the file has no keys"))
        return None
    own = dict(root.value)
    base = own.pop("base", None)
    mapping = Node(own, root.position, root.origin)
    if base is None:
        return mapping
    lower = _read_base(path, base, environ, problems, (*chain, path.resolve()))
    return mapping if lower is None else merge(lower, mapping)


def _read_base(
    path: Path,
    base: Node,
    environ: Mapping[str, str],
    problems: list[Problem],
    chain: tuple[Path, ...],
) -> Node | None:
    place = (base.position.file, base.position.line, base.position.column)
    if not isinstance(base.value, str):
        problems.append(Problem(*place, "base: must be the path of one recipe file"))
        return None
    target = path.parent / base.value
    if target.resolve() in chain:
        start = chain.index(target.resolve())
        cycle = " -> ".join(display(step) for step in (*chain[start:], target))
        problems.append(Problem(*place, f"base: goes round in a circle: {cycle}"))
        return None
    if not target.is_file():
        hint = "the path starts at the folder of this file"
        problems.append(Problem(*place, f"base: {base.value!r} is no file", hint))
        return None
    lower = read_with_bases(target, environ, problems, chain)
    if lower is None or not isinstance(lower.value, dict):
        return None
    inherited = {key: node for key, node in lower.value.items() if key not in NOT_INHERITED}
    return Node(inherited, lower.position, lower.origin)


def display(path: Path) -> str:
    """The path as messages show it: from the working directory where it lies below it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _read_text(path: Path, shown: str, problems: list[Problem]) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        problems.append(Problem(shown, 0, 0, f"not UTF-8 text: {error.reason}"))
    except OSError as error:
        problems.append(Problem(shown, 0, 0, f"cannot be read: {error.strerror or error}"))
    return None
