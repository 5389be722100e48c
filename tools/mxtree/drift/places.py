# SPDX-License-Identifier: Apache-2.0
"""What an item of a ``Changes:`` field means in a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mxtree.drift.definitions import Name
    from mxtree.drift.trees import Trees


class Place(NamedTuple):
    """A file, and the name in it; the empty name is the whole file."""

    path: str
    name: Name


def locate(trees: Trees, commit: str, item: str) -> Place | None:
    """Return the place that ``item`` means; None when the commit has none.

    ``item`` is a path, or a dotted Python name: the longest part of it that is a module counts.
    A package that is not at the top of the repository (``src/``) is found when it is the only one.
    In a file that cannot be parsed the place is the whole file.
    """
    paths = trees.paths(commit)
    if item in paths:
        return Place(item, ())
    parts = tuple(item.split("."))
    for length in range(len(parts), 0, -1):
        path = _module_path(paths, "/".join(parts[:length]))
        if path is not None:
            rest = parts[length:] if trees.is_readable(commit, path) else ()
            return Place(path, rest) if trees.find(commit, path, rest) is not None else None
    return None


def _module_path(paths: frozenset[str], stem: str) -> str | None:
    names = (f"{stem}.py", f"{stem}/__init__.py")
    for name in names:
        if name in paths:
            return name
    deeper = [path for path in paths if path.endswith(tuple(f"/{name}" for name in names))]
    return deeper[0] if len(deeper) == 1 and "/" in stem else None


def spell(place: Place) -> str:
    """Return a place as a reader writes it: a dotted name, or a path."""
    if not place.name:
        return place.path
    module = place.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return ".".join((module, *place.name))


def neighbours(ours: Trees, patched: str, theirs: Trees, base: str, place: Place) -> list[Place]:
    """Return what stands next to something that a patch adds, as far as the base has it.

    The nearest definition before and after it in the same scope; when the base has neither, the
    class, function or file around it; nothing for a new file.
    """
    path = place.path
    if theirs.module(base, path) is None or not place.name:
        return []
    name = place.name
    # A method of a new class is added where the class is.
    while len(name) > 1 and theirs.find(base, path, name[:-1]) is None:
        name = name[:-1]
    module = ours.module(patched, path)
    sides = module.neighbours(name) if module else ([], [])
    near = [
        next((n for n in side if theirs.find(base, path, n) is not None), None) for side in sides
    ]
    found = [Place(path, other) for other in near if other is not None]
    return found or [Place(path, name[:-1])]
