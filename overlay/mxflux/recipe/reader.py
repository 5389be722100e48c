# SPDX-License-Identifier: Apache-2.0
"""One YAML document into nodes that know their places; every fault of the text in one pass."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from .errors import Problem
from .nodes import BROKEN, Node, Origin, Position
from .scalars import read_scalar
from .variables import VariableError, expand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ruamel.yaml.nodes import Node as YamlNode

RESOLVED_HEADER = "# mxtree resolved recipe, format 1"
"""First line of a file whose trailing comments say where each value came from."""
_CAME_FROM = re.compile(r"\s+# @ (.+)")


class Reader:
    """Reads one text. After ``read``, ``problems`` has what was wrong with it."""

    def __init__(
        self, text: str, file: str, environ: Mapping[str, str], *, kind: str = "file"
    ) -> None:
        self.text = text
        self.file = file
        self.environ = environ
        self.kind = kind
        self.problems: list[Problem] = []
        self._lines = text.splitlines()
        self._resolved = text.startswith(RESOLVED_HEADER)

    def read(self) -> Node | None:
        """The document, or None when it is empty or no YAML at all."""
        try:
            root = YAML(typ="rt").compose(self.text)
        except MarkedYAMLError as error:
            self._yaml_error(error)
            return None
        except YAMLError as error:
            self.problems.append(Problem(self.file, 1, 1, f"not YAML: {error}"))
            return None
        return None if root is None else self._node(root)

    def _yaml_error(self, error: MarkedYAMLError) -> None:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        hint = None
        if line <= len(self._lines) and "${" in self._lines[line - 1]:
            hint = "inside [ ] and { } a variable must stand in quotes"
        message = ", ".join(part for part in (error.context, error.problem) if part)
        self.problems.append(Problem(self.file, line, column, f"not YAML: {message}", hint))

    def _position(self, node: YamlNode) -> Position:
        return Position(self.file, node.start_mark.line + 1, node.start_mark.column + 1)

    def _complain(self, node: YamlNode, message: str, hint: str | None = None) -> None:
        position = self._position(node)
        self.problems.append(Problem(self.file, position.line, position.column, message, hint))

    def _node(self, node: YamlNode, key: Position | None = None) -> Node:
        position = self._position(node)
        if node.anchor:
            hint = "write it out, or use base:"
            self._complain(node, f"anchors and aliases (&{node.anchor}) are not read", hint)
            return Node(None, position, BROKEN, key)
        if isinstance(node, MappingNode):
            return Node(self._mapping(node), position, self._origin(node), key)
        if isinstance(node, SequenceNode):
            items = [self._node(item) for item in node.value]
            return Node(items, position, self._list_origin(node, items), key)
        assert isinstance(node, ScalarNode)
        return self._scalar(node, position, key)

    def _mapping(self, node: MappingNode) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode) or key_node.value == "<<":
                self._complain(key_node, "a key must be a word", "use base: to inherit")
                continue
            key, position = key_node.value, self._position(key_node)
            if key in found:
                first = found[key].key or found[key].position
                self._complain(
                    key_node,
                    f"duplicate key {key!r}: lines {first.line} and {position.line}",
                    "keep one of them",
                )
                continue
            found[key] = self._node(value_node, position)
        return found

    def _scalar(self, node: ScalarNode, position: Position, key: Position | None) -> Node:
        quoted = node.style in {"'", '"', "|", ">"}
        if not quoted and self._is_tagged(node):
            self._complain(node, "tags (!) are not read", "quotes make a text")
            return Node(None, position, BROKEN, key)
        try:
            expanded = expand(node.value, self.environ)
        except VariableError as error:
            self._complain(node, str(error), error.hint)
            return Node(None, position, BROKEN, key)
        value = expanded.text if quoted else read_scalar(expanded.text)
        return Node(value, position, self._origin(node, expanded.variables), key)

    def _is_tagged(self, node: ScalarNode) -> bool:
        line = self._lines[node.start_mark.line] if node.start_mark.line < len(self._lines) else ""
        return line[node.start_mark.column :].startswith("!")

    def _origin(self, node: YamlNode, variables: tuple[str, ...] = ()) -> Origin:
        if self.kind != "file":
            return Origin(self.kind, variables=variables)
        line = node.start_mark.line
        if self._resolved and node.end_mark.line == line:
            match = _CAME_FROM.fullmatch(self._lines[line][node.end_mark.column :])
            if match:
                return Origin.parse(match[1])
        return Origin("file", self.file, line + 1, variables)

    def _list_origin(self, node: SequenceNode, items: list[Node]) -> Origin:
        variables = tuple(name for item in items for name in item.origin.variables)
        return self._origin(node, variables)
