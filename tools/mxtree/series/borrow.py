# SPDX-License-Identifier: Apache-2.0
"""A private git directory that shares nothing with a repository but its objects.

Neither the repository's own configuration, attributes and hooks nor a half-finished rebase or a
lock in it can reach what runs here, and no reference of it can move. Objects written here land in
the repository.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from mxtree.git import GitResult, git, git_text, run_git
from mxtree.series.feed import Feed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

# `info/attributes` outranks every .gitattributes. Upstream's own must not convert a line end
# between blob and work tree, hide a text file from diff, or choose how a hunk header is worded.
NEUTRAL_ATTRIBUTES = "* -text !eol !filter !ident !working-tree-encoding !diff"


class BorrowedObjects:
    """A context manager: a scratch git directory, and a work tree for those who need one."""

    def __init__(self, repo: Path, *revisions: str) -> None:
        paths = ("--git-path", "objects", "--git-path", "shallow")
        found = git_text("rev-parse", "--path-format=absolute", *paths, *revisions, cwd=repo)
        objects, shallow, *ids = found.splitlines()
        #: The ids of ``revisions``, which may be any names that ``repo`` knows.
        self.resolved = tuple(ids)
        self.folder = Path(tempfile.mkdtemp(prefix="mxtree-git-"))
        self.work_tree = self.folder / "tree"
        self.work_tree.mkdir()
        self._env = {
            "GIT_DIR": str(self.folder / "git"),
            "GIT_WORK_TREE": str(self.work_tree),
            "GIT_OBJECT_DIRECTORY": objects,
        }
        self._init(Path(shallow))

    def _init(self, shallow: Path) -> None:
        self.git("init", "--quiet", "--template=")
        folder = self.folder / "git"
        (folder / "info").mkdir(exist_ok=True)
        (folder / "info" / "attributes").write_text(f"{NEUTRAL_ATTRIBUTES}\n", encoding="ascii")
        if shallow.is_file():
            shutil.copyfile(shallow, folder / "shallow")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def git(self, *args: str | Path, stdin: bytes = b"") -> bytes:
        """Run git here and return its standard output. Raises `GitError` when it fails."""
        return git(*args, cwd=self.work_tree, stdin=stdin, env=self._env)

    def run(self, *args: str | Path, stdin: bytes = b"", ok: Sequence[int] = (0,)) -> GitResult:
        """Run git here and return its result. Raises `GitError` for a status not in ``ok``."""
        return run_git(*args, cwd=self.work_tree, stdin=stdin, env=self._env, ok=ok)

    def feed(self, *args: str) -> Feed:
        """Start git here, to be fed piece by piece."""
        return Feed(args, cwd=self.work_tree, env=self._env)

    def commits(self, base: str, tip: str) -> list[tuple[str, str]]:
        """Return (commit, tree) of everything after ``base`` up to ``tip``, oldest first."""
        out = self.git("log", "--format=%H %T", "--reverse", "--first-parent", f"{base}..{tip}")
        rows = (row.split(" ") for row in out.decode("ascii").splitlines())
        return [(commit, tree) for commit, tree in rows]
