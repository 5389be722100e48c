# SPDX-License-Identifier: Apache-2.0
"""Real `git am` in a private work tree: the judge of every patch that is out of the ordinary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.series.borrow import BorrowedObjects

if TYPE_CHECKING:
    from mxtree.git import GitResult

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


class AmSession(BorrowedObjects):
    """A private work tree in which patches become commits the slow way."""

    def checkout(self, commit: str) -> None:
        """Put HEAD, index and work tree at ``commit``."""
        self.git("update-ref", "--no-deref", "HEAD", commit)
        self.git("reset", "--quiet", "--hard")

    def am(self, mbox: bytes, *, three_way: bool) -> GitResult:
        """Run `git am` on ``mbox`` at HEAD and return its result, whatever that is."""
        merge = "--3way" if three_way else "--no-3way"
        return self.run("am", *AM_OPTIONS, merge, stdin=mbox, ok=range(256))
