# SPDX-License-Identifier: Apache-2.0
"""The canonical bytes of a patch: one commit, one spelling, whatever git or user wrote it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mxtree.errors import ExitCode, FatalError
from mxtree.series.borrow import BorrowedObjects

if TYPE_CHECKING:
    from pathlib import Path

#: Each option fixes bytes that would otherwise follow a version, a machine or a user, together
#: with the configuration in `mxtree.git`; docs/reference/patch-format.md says which and why.
FORMAT_PATCH = (
    *("--pretty=mboxrd", "--keep-subject", "--always", "--encode-email-headers"),
    *("--binary", "--full-index", "--zero-commit", "--no-signature", "--no-stat"),
    *("--no-cover-letter", "--no-attach", "--no-thread", "--no-to", "--no-cc"),
    *("--no-add-header", "--no-notes", "--no-base", "--no-signoff"),
    *("--no-ext-diff", "--no-textconv", "--no-color", "--no-relative"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--submodule=short"),
    *("--unified=3", "--inter-hunk-context=0", "--diff-algorithm=myers", "--indent-heuristic"),
    *("--find-renames=50%", "-l1000"),
)

#: The first line of every canonical patch.
SEPARATOR = b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\n"

_START = re.compile(b"^" + SEPARATOR, re.MULTILINE)


def format_range(repo: Path, base: str, tip: str) -> tuple[bytes, ...]:
    """Return the canonical patch of every commit in ``base..tip`` of ``repo``, oldest first.

    One git process for the whole range: mboxrd quotes every
    "From " in a message, and no line of a diff can begin with one, so the separators are
    unmistakable. Raises `FatalError` when commits and patches do not pair up: a merge has no patch.
    """
    with BorrowedObjects(repo, f"{base}^{{commit}}", f"{tip}^{{commit}}") as private:
        between = "..".join(private.resolved)
        out = private.git("format-patch", *FORMAT_PATCH, "--stdout", between)
        commits = int(private.git("rev-list", "--count", between))
    starts = [match.start() for match in _START.finditer(out)]
    if len(starts) != commits:
        raise FatalError(
            f"{base}..{tip} is {commits} commits but {len(starts)} patches: a merge has none",
            hint="make the history linear with `git rebase`",
            code=ExitCode.CHECK_FAILED,
        )
    # On one stream git writes a blank line between two mails; the last one has none.
    ends = [*(start - 1 for start in starts[1:]), len(out)][:commits]
    return tuple(out[i:j] for i, j in zip(starts, ends, strict=True))
