# SPDX-License-Identifier: Apache-2.0
"""Real `git am` in a private work tree: the judge of every patch that is out of the ordinary."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from mxtree.git import GitResult, git, git_text, run_git

if TYPE_CHECKING:
    from types import TracebackType

    from mxtree.series import Patch

AM_OPTIONS = (
    "--patch-format=mboxrd",
    "--keep",
    "--keep-cr",
    "--quoted-cr=nowarn",
    "--no-scissors",
    "--empty=keep",
    "--committer-date-is-author-date",
    "--no-gpg-sign",
)

# Upstream's own attributes must not convert a line end between blob and work tree, or the same
# patch would fit here and not there; `info/attributes` outranks every .gitattributes.
_NEUTRAL_ATTRIBUTES = "* -text !eol !filter !ident !working-tree-encoding\n"


class AmSession:
    """A private git directory and work tree that share nothing with ``repo`` but its objects."""

    def __init__(self, repo: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mxtree-am-")
        root = Path(self._folder.name)
        objects = git_text("rev-parse", "--path-format=absolute", "--git-path", "objects", cwd=repo)
        self.work_tree = root / "tree"
        self.work_tree.mkdir()
        self._env = {
            "GIT_DIR": str(root / "git"),
            "GIT_WORK_TREE": str(self.work_tree),
            "GIT_OBJECT_DIRECTORY": objects,
        }
        self.git("init", "--quiet", "--template=")
        info = root / "git" / "info"
        info.mkdir(exist_ok=True)
        (info / "attributes").write_text(_NEUTRAL_ATTRIBUTES, encoding="ascii")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._folder.cleanup()

    def git(self, *args: str, stdin: bytes = b"") -> bytes:
        """Run git in the private work tree."""
        return git(*args, cwd=self.work_tree, stdin=stdin, env=self._env)

    def start(self, commit: str) -> None:
        """Put HEAD, index and work tree at ``commit``."""
        self.git("update-ref", "--no-deref", "HEAD", commit)
        self.git("reset", "--quiet", "--hard")

    def am(self, mbox: bytes, *, three_way: bool) -> GitResult:
        """Run `git am` on ``mbox`` at HEAD and return its result, whatever that is."""
        merge = "--3way" if three_way else "--no-3way"
        return run_git(
            "am", *AM_OPTIONS, merge, cwd=self.work_tree, stdin=mbox, env=self._env, ok=range(256)
        )

    def abort(self) -> None:
        """Forget an `am` that stopped."""
        self.git("am", "--abort")

    def commits(self, base: str) -> list[tuple[str, str]]:
        """Return (commit, tree) of everything after ``base``, oldest first."""
        out = self.git("log", "--format=%H %T", "--reverse", "--first-parent", f"{base}..HEAD")
        return [
            (commit, tree) for commit, tree in (row.split() for row in out.decode().splitlines())
        ]


def series_as_mbox(patches: tuple[Patch, ...]) -> bytes:
    """Return the patches as one mboxrd."""
    return b"".join(patch.raw for patch in patches)
