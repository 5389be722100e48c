# SPDX-License-Identifier: Apache-2.0
"""Where the rooms of an mxtree checkout are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mxtree.errors import FatalError

_MARKER = Path("patches", "upstreams.toml")


@dataclass(frozen=True)
class Project:
    """One checkout of this repository (or of another one with the same layout)."""

    root: Path

    @property
    def patches(self) -> Path:
        return self.root / "patches"

    @property
    def upstreams_file(self) -> Path:
        return self.root / _MARKER

    @property
    def overlay(self) -> Path:
        return self.root / "overlay"

    @property
    def recipes(self) -> Path:
        return self.root / "recipes"

    @property
    def default_tree(self) -> Path:
        return self.root / "trees" / "default"

    def series_dir(self, upstream: str, version: str) -> Path:
        """Return the directory that holds the series of one upstream version."""
        return self.patches / upstream / version


def find_project(start: Path | None = None) -> Project:
    """Return the project around ``start``: MXTREE_PROJECT, else the nearest parent that has one.

    Raises `FatalError` when neither holds ``patches/upstreams.toml``.
    """
    named = os.environ.get("MXTREE_PROJECT")
    where = (Path(named) if named else start or Path.cwd()).absolute()
    candidates = [where] if named else [where, *where.parents]
    for root in candidates:
        if (root / _MARKER).is_file():
            return Project(root)
    raise FatalError(
        f"no {_MARKER} in {where}" + ("" if named else " or any folder above it"),
        hint="run mxtree inside its checkout, or set MXTREE_PROJECT to it",
    )
