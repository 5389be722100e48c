# SPDX-License-Identifier: Apache-2.0
"""load(): a recipe file, its bases and the overrides of a command line into one checked Recipe."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .bases import display, read_with_bases
from .dump import dump
from .errors import Problem, RecipeError
from .keys import all_keys
from .nodes import DEFAULT, Node, Origin, Position
from .overrides import apply_overrides
from .schema import Recipe
from .validate import validate


@dataclass(frozen=True)
class Loaded:
    """A recipe and where each of its values comes from, by dotted key."""

    recipe: Recipe
    origins: Mapping[str, Origin]

    def dump_resolved(self) -> bytes:
        """Every key with its value and, as a comment, its origin.

        Loading the result gives the same recipe, the same origins and these same bytes.
        """
        return dump(self.recipe, self.origins)


def load(
    path: str | os.PathLike[str],
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """The recipe of ``path`` with ``section.key=value`` overrides; raises RecipeError.

    environ: what ${VAR} refers to; by default that of the process.
    """
    variables = os.environ if environ is None else environ
    problems: list[Problem] = []
    root = read_with_bases(Path(path), variables, problems)
    if root is None:
        raise RecipeError(problems)
    root = apply_overrides(_named(root, Path(path)), overrides, variables, problems)
    recipe = validate(root, problems)
    if recipe is None:
        raise RecipeError(_in_order(problems))
    return Loaded(recipe, _origins(root))


def _named(root: Node, path: Path) -> Node:
    """A recipe that does not name itself has the name of its file."""
    mapping = root.value
    if not isinstance(mapping, dict) or "name" in mapping:
        return root
    name = Node(path.stem, Position(display(path), 1, 1), Origin("file name"))
    return Node({"name": name, **mapping}, root.position, root.origin)


def _origins(root: Node) -> dict[str, Origin]:
    origins = dict.fromkeys(all_keys(), DEFAULT)
    origins.update((key, node.origin) for key in origins if (node := root.at(key.split("."))))
    return origins


def _in_order(problems: list[Problem]) -> list[Problem]:
    """By file in the order of reading, then by place; each fault once."""
    files = {file: index for index, file in enumerate(dict.fromkeys(p.file for p in problems))}
    unique = list(dict.fromkeys(problems))
    return sorted(unique, key=lambda p: (files[p.file], p.line, p.column))
