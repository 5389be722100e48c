# SPDX-License-Identifier: Apache-2.0
"""A small repository, and patches against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from git_am_reference import as_patches
from random_history import FILE, SYMLINK, Commit, stream

from mxtree.engine import Applied, apply_series
from mxtree.git import git, git_text
from mxtree.series.canonical import format_range

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.series import Patch

AUTHOR = "Ada L <ada@example.org>"
DATE = "1796083200 +0000"

LINES = [b"line %d\n" % number for number in range(1, 41)]

BASE = {
    b"core/numbers.py": (FILE, b"".join(LINES)),
    b"core/data.bin": (FILE, bytes(range(256)) * 4),
    b"link": (SYMLINK, b"core"),
    b"empty": (FILE, b""),
}

Files = Mapping[bytes, bytes | tuple[int, bytes] | None]


class SmallRepo:
    """A bare repository whose commit ``base`` holds `BASE`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        git("init", "--quiet", "--bare", "--template=", path)
        self.base = self.commits([Commit(BASE, "Base\n", AUTHOR, DATE)])[0]

    def commits(self, commits: list[Commit]) -> list[str]:
        """Write the commits, one on the other, and return their ids."""
        git("update-ref", "-d", "refs/heads/main", cwd=self.path)
        git("fast-import", "--quiet", "--force", cwd=self.path, stdin=b"".join(stream(commits)))
        return git_text("rev-list", "--reverse", "main", cwd=self.path).split()

    def on(self, changes: Files) -> str:
        """Return a commit with `BASE` and ``changes``: another base."""
        return self.commits([Commit(_changed(BASE, changes), "Other base\n", AUTHOR, DATE)])[0]

    def patches(
        self, *steps: Files, folder: Path | None = None, messages: tuple[str, ...] = ()
    ) -> list[Patch]:
        """Return a patch for each step; None deletes a path."""
        tree = BASE
        commits = [Commit(tree, "Base\n", AUTHOR, DATE)]
        for number, step in enumerate(steps):
            tree = _changed(tree, step)
            message = messages[number] if messages else f"Step {number + 1}\n"
            commits.append(Commit(tree, message, AUTHOR, DATE))
        ids = self.commits(commits)
        return as_patches(format_range(self.path, ids[0], ids[-1]), folder)

    def apply(self, patches: list[Patch], base: str | None = None) -> tuple[Applied, ...]:
        """Apply ``patches`` on ``base``, by default the commit with `BASE`."""
        return apply_series(self.path, base or self.base, patches)

    def read(self, applied: tuple[Applied, ...], path: str) -> bytes:
        """Return a file of the last commit."""
        return git("cat-file", "blob", f"{applied[-1].commit}:{path}", cwd=self.path)


def _changed(tree: dict[bytes, tuple[int, bytes]], step: Files) -> dict[bytes, tuple[int, bytes]]:
    new = dict(tree)
    for path, value in step.items():
        if value is None:
            del new[path]
        else:
            new[path] = value if isinstance(value, tuple) else (FILE, value)
    return new


def edited(*changes: tuple[int, bytes]) -> bytes:
    """Return core/numbers.py with lines replaced: (line number, new text with line feeds)."""
    lines = list(LINES)
    for number, text in sorted(changes, reverse=True):
        lines[number - 1] = text
    return b"".join(lines)
