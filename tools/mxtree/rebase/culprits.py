# SPDX-License-Identifier: Apache-2.0
"""Which upstream commits or releases changed the lines that a patch wants to change."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mxtree.git import run_git
from mxtree.rebase.hunks import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxtree.rebase.model import Rebase
    from mxtree.rebase.work import Work

_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


def culprits(work: Work, rebase: Rebase, path: str, hunk: Span, limit: int = 8) -> list[str]:
    """Return the upstream changes between the bases that touch the lines of a hunk, oldest first.

    ``hunk`` counts lines as the patch does, on top of the patches before it. A commit is named by
    id, date and subject (git source), a release by its version (index source).
    """
    versions = list(_versions(work, rebase, path))
    before = f"{rebase.current.old_commit}^"
    span, _ = _follow(hunk, _hunks(work, before, rebase.old.commit, path))
    found = []
    for older, (label, commit) in zip(
        [rebase.old.commit, *(c for _, c in versions)], versions, strict=False
    ):
        span, is_touched = _follow(span, _hunks(work, older, commit, path))
        if is_touched:
            found.append(label or work.text("log", "-1", "--format=%h %cs %s", commit))
    return found[:limit]


def _versions(work: Work, rebase: Rebase, path: str) -> Iterator[tuple[str, str]]:
    """Yield the commits between the bases at which the file changed, the new base last."""
    old, new = rebase.old.commit, rebase.new.commit
    above = run_git("merge-base", "--is-ancestor", old, new, cwd=work.path, ok=range(256))
    if above.returncode == 0:
        log = work.git(
            *("--literal-pathspecs", "rev-list", "--reverse", "--first-parent"),
            *(f"{old}..{new}", "--", path),
        )
        for commit in log.decode().split():
            yield "", commit
    else:
        for end in (*rebase.between, rebase.new):
            yield f"release {end.version}", end.commit


def _hunks(work: Work, old: str, new: str, path: str) -> list[tuple[Span, Span]]:
    """Return the changed line spans of a file, old and new; an empty span ends before it begins."""
    options = ("--unified=0", "--no-color", "--no-ext-diff")
    diff = work.git("--literal-pathspecs", "diff", *options, old, new, "--", path)
    spans = []
    for match in _HUNK.finditer(diff):
        start, count, new_start, new_count = (
            int(g) if g is not None else 1 for g in match.groups()
        )
        spans.append((_span(start, count), _span(new_start, new_count)))
    return spans


def _span(start: int, count: int) -> Span:
    # For an empty side git gives the line before the gap.
    return Span(start, start + count - 1) if count else Span(start + 1, start)


def _follow(span: Span, hunks: list[tuple[Span, Span]]) -> tuple[Span, bool]:
    """Return where the lines of ``span`` are after a change, and whether it touches them."""
    first, last = span
    is_touched = False
    for old, new in hunks:
        growth = (new.last - new.first) - (old.last - old.first)
        if old.last < span.first and old.first <= span.first:
            first, last = first + growth, last + growth
        elif old.first <= span.last + 1:
            is_touched = True
            last += growth
    return Span(first, max(first, last)), is_touched
