# SPDX-License-Identifier: Apache-2.0
"""Find a dotted name in Python source, by its syntax tree."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Name = tuple[str, ...]

_SCOPES = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
#: Fields that hold the statements of an `if`, `try`, `with`, `for`, `while` or `match`.
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@dataclass(frozen=True)
class Module:
    """The lines of one file, and first and last line of its definitions, counted from 1.

    ``spans`` is None where the file is no Python that can be parsed. ``imports`` are the names that
    it gets from other modules, with the name of the module as the statement has it.
    """

    lines: list[str]
    spans: dict[Name, list[tuple[int, int]]] | None
    imports: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: bytes) -> Module:
        """Read a file; never raises."""
        # The parser ends lines at these three and nowhere else, unlike `str.splitlines`.
        source = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                parsed = ast.parse(source)
                return cls(source.split("\n"), _spans(parsed), _imports(parsed))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return cls(source.split("\n"), None)

    @property
    def names(self) -> tuple[Name, ...]:
        """Every definition, in order of first appearance."""
        return tuple(self.spans or ())

    def find(self, name: Name) -> list[str] | None:
        """Return the source lines of a definition; None when there is none.

        Overloads, a property with its setter and the two branches of an `if` count as one. The
        empty name is the whole file.
        """
        if not name:
            return self.lines
        spans = (self.spans or {}).get(name)
        if spans is None:
            return None
        return [line for first, last in spans for line in self.lines[first - 1 : last]]

    def neighbours(self, name: Name) -> tuple[list[Name], list[Name]]:
        """Return the definitions before and after one in its scope, the nearest first."""
        spans = self.spans or {}
        if name not in spans:
            return [], []
        here = spans[name][0]
        others = [other for other in spans if other[:-1] == name[:-1] and other != name]
        others.sort(key=lambda other: spans[other][0])
        before = [other for other in others if spans[other][0] < here]
        return before[::-1], [other for other in others if spans[other][0] >= here]


def dedented(lines: Sequence[str]) -> list[str]:
    """Return lines without the indentation of the first one."""
    first = lines[0] if lines else ""
    indent = first[: len(first) - len(first.lstrip())]
    return [line.removeprefix(indent) for line in lines]


def _spans(parsed: ast.Module) -> dict[Name, list[tuple[int, int]]]:
    spans: dict[Name, list[tuple[int, int]]] = {}
    for name, first, last in _walk(parsed.body, ()):
        spans.setdefault(name, []).append((first, last))
    return spans


def _imports(parsed: ast.Module) -> dict[str, str]:
    nodes = (node for node in ast.walk(parsed) if isinstance(node, ast.ImportFrom))
    return {alias.asname or alias.name: node.module or "" for node in nodes for alias in node.names}


def _walk(body: Sequence[ast.stmt], scope: Name) -> Iterator[tuple[Name, int, int]]:
    """Yield name, first and last line of what each statement defines, nested scopes included."""
    for node in body:
        last = node.end_lineno or node.lineno
        if isinstance(node, _SCOPES):
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            name = (*scope, node.name)
            yield name, first, last
            yield from _walk(node.body, name)
        else:
            for target in _targets(node):
                yield (*scope, target), node.lineno, last
            yield from _nested(node, scope)


def _nested(node: ast.AST, scope: Name) -> Iterator[tuple[Name, int, int]]:
    """Walk the blocks of a compound statement: they are of the scope around it."""
    for block in _BLOCKS:
        items = getattr(node, block, ())
        for item in items if isinstance(items, list) else ():
            if isinstance(item, ast.stmt):
                yield from _walk([item], scope)
            else:
                yield from _nested(item, scope)


def _targets(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Assign):
        targets: Sequence[ast.expr] = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    else:
        return
    for target in targets:
        for leaf in ast.walk(target):
            if isinstance(leaf, ast.Name) and isinstance(leaf.ctx, ast.Store):
                yield leaf.id
