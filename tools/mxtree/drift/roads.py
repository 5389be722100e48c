# SPDX-License-Identifier: Apache-2.0
"""What lies between the base of a series and the newest upstream: releases, or commits."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from mxtree.git import git, git_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mxtree.drift.trees import Trees


class Road(Protocol):
    """Stones are commits, oldest first."""

    @property
    def start(self) -> str:
        """The commit that the first stone is compared with."""

    def stones(self, after: str, path: str) -> Sequence[str]:
        """Return the stones after one (or the start) at which a file may have changed."""

    def before(self, stone: str) -> str:
        """Return the commit that a stone is compared with."""

    def label(self, stone: str) -> str:
        """Return what a reader calls a stone."""

    def position(self, stone: str) -> int:
        """Return how far along the road a stone is."""


class Releases:
    """The pinned releases after the base, one after the other."""

    def __init__(self, base: str, versions: Mapping[str, str]) -> None:
        """``versions`` are the commits of the releases by version, oldest first."""
        self.start = base
        self._commits = [base, *versions.values()]
        self._labels = {commit: version for version, commit in versions.items()}

    def stones(self, after: str, path: str) -> Sequence[str]:  # noqa: ARG002  any file may differ
        """Return the releases after one."""
        return self._commits[self._commits.index(after) + 1 :]

    def before(self, stone: str) -> str:
        """Return the release before."""
        return self._commits[self._commits.index(stone) - 1]

    def label(self, stone: str) -> str:
        """Return the version."""
        return self._labels[stone]

    def position(self, stone: str) -> int:
        """Return the number of the release."""
        return self._commits.index(stone)


class History:
    """The commits of a branch since the base, or since it left the branch of the base.

    Along first parents, so that a merge is one change.
    """

    def __init__(self, trees: Trees, start: str, end: str) -> None:
        self.start = start
        self._end = end
        self._trees = trees

    def stones(self, after: str, path: str) -> Sequence[str]:
        """Return the commits that change a file."""
        return self._trees.history(after, self._end, [path])

    def before(self, stone: str) -> str:
        """Return the first parent."""
        return f"{stone}^"

    def label(self, stone: str) -> str:
        """Return id, date and subject."""
        text = git("log", "-1", "--format=%h %cs %s", "--abbrev=12", stone, cwd=self._trees.repo)
        return text.decode("utf-8", "replace").strip()

    @cached_property
    def _positions(self) -> dict[str, int]:
        span = f"{self.start}..{self._end}"
        out = git_text("rev-list", "--reverse", "--first-parent", span, cwd=self._trees.repo)
        return {commit: number for number, commit in enumerate(out.split())}

    def position(self, stone: str) -> int:
        """Return the number of the commit."""
        return self._positions[stone]

    def __len__(self) -> int:
        return len(self._positions)
