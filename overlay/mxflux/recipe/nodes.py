# SPDX-License-Identifier: Apache-2.0
"""Values that know where they were written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

from .scalars import Scalar

Tree = Union[Scalar, "dict[str, Node]", "list[Node]"]


@dataclass(frozen=True)
class Position:
    """Where something is written; line and column count from 1."""

    file: str
    line: int
    column: int


@dataclass(frozen=True)
class Origin:
    """Where the value of a key comes from.

    kind: file, command line, file name or default; variables: environment variables in it.
    """

    kind: str
    file: str = ""
    line: int = 0
    variables: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.kind == "file" else self.kind
        return place + "".join(f" ${name}" for name in self.variables)

    @classmethod
    def parse(cls, text: str) -> Origin:
        """The origin that ``str`` wrote as ``text``."""
        place, *names = text.split(" $")
        variables = tuple(names)
        file, _, line = place.rpartition(":")
        if file and line.isdecimal():
            return cls("file", file, int(line), variables)
        return cls(place, variables=variables)


DEFAULT = Origin("default")
BROKEN = Origin("broken")
"""Of a value that could not be read; the fault is reported already."""


@dataclass(frozen=True)
class Node:
    """A scalar, a mapping or a list, with its place, its key's place, and its origin."""

    value: Tree
    position: Position
    origin: Origin
    key: Position | None = field(default=None, compare=False)

    def plain(self) -> Any:
        """The value without positions."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def at(self, path: Sequence[str | int]) -> Node | None:
        """The node below this one that ``path`` leads to, or None."""
        node: Node | None = self
        for step in path:
            value = node.value if node is not None else None
            if isinstance(value, dict) and isinstance(step, str):
                node = value.get(step)
            elif isinstance(value, list) and isinstance(step, int) and step < len(value):
                node = value[step]
            else:
                return None
        return node

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, Node]]:
        """Dotted key and node of everything that is no mapping."""
        if not isinstance(self.value, dict):
            yield prefix, self
            return
        for key, node in self.value.items():
            yield from node.leaves(f"{prefix}.{key}" if prefix else key)


def merge(lower: Node, upper: Node) -> Node:
    """``upper`` over ``lower``: mappings key by key, anything else as a whole."""
    if not isinstance(lower.value, dict) or not isinstance(upper.value, dict):
        return upper
    merged = dict(lower.value)
    for key, node in upper.value.items():
        merged[key] = merge(merged[key], node) if key in merged else node
    return Node(merged, upper.position, upper.origin, upper.key)
