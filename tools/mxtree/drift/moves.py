# SPDX-License-Identifier: Apache-2.0
"""Where a definition went that is no longer where it was."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from mxtree.drift.definitions import dedented
from mxtree.drift.places import Place, spell

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mxtree.drift.trees import Trees

#: Less than this in common is another definition of the same name.
_ALIKE = 0.5

#: A definition of fewer lines (a flag, a one-line default) has twins everywhere that are not it.
_DISTINCT_LINES = 3


def moved(trees: Trees, old: str, new: str, place: Place) -> Place | None:
    """Return where ``new`` has what ``old`` has at ``place``.

    The file was renamed; or the class (or function) around it went elsewhere; or a definition of
    the same name that was not there before has at least half of the lines (for one or two lines
    the old module must import it, too). None when none is so.
    """
    path, name = place
    renamed = trees.renamed(old, new, path)
    if renamed is not None and trees.find(new, renamed, name) is not None:
        return Place(renamed, name)
    if not name:
        return None
    if len(name) > 1 and trees.find(new, path, name[:-1]) is None:
        scope = moved(trees, old, new, Place(path, name[:-1]))
        if scope is not None:
            inside = Place(scope.path, (*scope.name, name[-1]))
            return inside if trees.find(new, *inside) is not None else None
    return _most_alike(trees, old, new, place)


def _most_alike(trees: Trees, old: str, new: str, place: Place) -> Place | None:
    before = trees.find(old, *place)
    word = place.name[-1]
    # Every class has an `__init__`: its name alone says nothing.
    if before is None or word.startswith("__"):
        return None
    best, best_ratio = None, 0.0
    for other in _namesakes(trees, new, word):
        now = trees.find(new, *other)
        if now is None or trees.find(old, *other) is not None:
            continue
        if len(before) < _DISTINCT_LINES and not _is_imported(trees, new, place, other):
            continue
        ratio = _similarity(before, now)
        if ratio >= _ALIKE and ratio > best_ratio:
            best, best_ratio = other, ratio
    return best


def _is_imported(trees: Trees, commit: str, old: Place, new: Place) -> bool:
    """Return whether the old module gets the name from the new one now: the sign of a move."""
    module = trees.module(commit, old.path)
    origin = module.imports.get(old.name[-1], "") if module and len(old.name) == 1 else ""
    # A relative import names only the end of the module.
    return bool(origin) and f".{spell(Place(new.path, new.name))}".endswith(
        f".{origin}.{new.name[-1]}"
    )


def _similarity(one: Sequence[str], other: Sequence[str]) -> float:
    """Return how much of two pieces of source is the same, wherever they are indented: 0 to 1."""
    return SequenceMatcher(None, dedented(one), dedented(other), autojunk=False).ratio()


def _namesakes(trees: Trees, commit: str, word: str) -> Iterator[Place]:
    for path in sorted(trees.mentioning(commit, word)):
        module = trees.module(commit, path)
        for name in module.names if module else ():
            if name[-1] == word:
                yield Place(path, name)
