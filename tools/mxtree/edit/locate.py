# SPDX-License-Identifier: Apache-2.0
"""Find the commit of a patch in a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxtree.edit.notes import read_notes
from mxtree.errors import FatalError
from mxtree.git import git
from mxtree.tree.manifest import load_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Located:
    """A patch of a tree: its file name, the repository and the commit that hold it."""

    upstream: str
    name: str
    repository: Path
    commit: str


def locate(tree: Path, wanted: str) -> Located:
    """Return the patch called ``wanted``: a file name, a number, a slug, or UPSTREAM/one of them.

    Raises `FatalError` that lists the patches of the tree when none or several answer to it.
    """
    everything = list(patches_of(tree))
    upstream, _, name = wanted.rpartition("/")
    found = [
        item
        for item in everything
        if upstream in {"", item.upstream} and name in _spellings(item.name)
    ]
    if len(found) == 1:
        return found[0]
    problem = "names several patches" if found else "is not a patch"
    raise FatalError(
        f"{wanted!r} {problem} of {tree}",
        details=[f"{item.upstream}/{item.name}" for item in found or everything],
        hint="use one of the names above",
    )


def patches_of(tree: Path) -> Iterator[Located]:
    """Yield every commit of a tree that is recorded as a patch, oldest first."""
    for upstream, record in load_manifest(tree).upstreams.items():
        repository = tree / upstream
        span = f"{record.base_commit}..HEAD"
        commits = git("rev-list", "--reverse", span, cwd=repository).decode().split()
        names = read_notes(repository, tuple(commits))
        for commit in commits:
            for name in names.get(commit, ())[:1]:
                yield Located(upstream, name, repository, commit)


def _spellings(name: str) -> set[str]:
    stem = name.removesuffix(".patch")
    return {name, stem, stem[:4], stem[5:]}
