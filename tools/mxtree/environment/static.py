# SPDX-License-Identifier: Apache-2.0
"""Read constants out of Python files without running them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def assignments(path: Path) -> dict[str, Any]:
    """Return every ``name = literal`` in the file, at any depth; the last one of a name counts."""
    found: dict[str, Any] = {}
    for node in ast.walk(_parse(path)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.update(_literal(name, value))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found.update(_literal(name, value))
    return found


def call_arguments(path: Path, function: str) -> dict[str, Any]:
    """Return the keyword arguments that are literals in the calls of ``function``."""
    found: dict[str, Any] = {}
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == function:
            for keyword in node.keywords:
                if keyword.arg is not None:
                    found.update(_literal(keyword.arg, keyword.value))
    return found


def returned(path: Path, function: str) -> Any:
    """Return the literal that ``function`` returns, or None."""
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            for statement in node.body:
                if isinstance(statement, ast.Return) and statement.value is not None:
                    return dict(_literal("value", statement.value)).get("value")
    return None


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def _literal(name: str, value: ast.expr) -> Iterator[tuple[str, Any]]:
    try:
        yield name, ast.literal_eval(value)
    except ValueError:
        return
