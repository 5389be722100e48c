# SPDX-License-Identifier: Apache-2.0
"""Canonical bytes, as far as a patch alone can tell."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree.engine.state import Edit
from mxtree.engine.stream import CommitStream
from mxtree.git import git, git_text
from mxtree.lint.unusual import why_unusual
from mxtree.series import Problem
from mxtree.series.borrow import BorrowedObjects
from mxtree.series.canonical import format_range
from mxtree.series.diff import (
    Change,
    FilePatch,
    Hunk,
    UnusualDiffError,
    junk_lines,
    parse_diff,
)
from mxtree.series.gitmail import read_with_git

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mxtree.series import Patch
    from mxtree.series.mail import Mail

#: What git writes around a change, and what it takes to join two hunks.
_CONTEXT = 3

_SCISSORS = (b">8", b"8<", b">%", b"%<")
_REWRITE = "mxtree export writes it so"


def check_form(patches: Sequence[Patch]) -> Iterator[Problem]:
    """Yield what is not as `mxtree export` would write it, and what git would cut or misread."""
    for patch in patches:
        if patch.mail is None:
            yield Problem(patch.path, *why_unusual(patch.raw), _REWRITE, "form-mail")
        else:
            yield from _check_message(patch, patch.mail)
            yield from _check_diff(patch, patch.mail)
    yield from _check_heads([patch for patch in patches if patch.mail is not None])


def _check_message(patch: Patch, mail: Mail) -> Iterator[Problem]:
    first = mail.diff.partition(b"\n")[0]
    if mail.diff and not first.startswith(b"diff --git "):
        message = f"git ends the message at {first.decode('utf-8', 'replace')!r}"
        fix = "reword the line, or delete it and what follows up to the diff"
        yield Problem(patch.path, mail.diff_line, message, fix, "message-cut")
    marks = [mark for mark in _SCISSORS if mark in mail.message]
    if marks and read_with_git(patch.raw, patch.path, scissors=True).message != mail.message:
        line = 1 + patch.raw.count(b"\n", 0, patch.raw.find(marks[0]))
        message = "git cuts the message here for everyone who has mailinfo.scissors set"
        yield Problem(patch.path, line, message, "reword the line", "message-scissors")


def _check_diff(patch: Patch, mail: Mail) -> Iterator[Problem]:
    try:
        sections = parse_diff(mail.diff, mail.diff_line)
        junk = junk_lines(mail.diff, mail.diff_line)
    except UnusualDiffError as error:
        yield Problem(patch.path, error.line, error.reason, _REWRITE, "form-diff")
        return
    if junk and junk[0] != mail.diff_line:
        message = "this text is part of no diff: git passes over it"
        fix = "delete it (a signature changes with the version of git)"
        yield Problem(patch.path, junk[0], message, fix, "form-junk")
    for section in sections:
        yield from _check_section(patch, section)


def _check_section(patch: Patch, section: FilePatch) -> Iterator[Problem]:
    ids = (section.old_id or b"", section.new_id or b"")
    if (section.hunks or section.binary) and any(len(oid) != 40 for oid in ids):
        message = "no index line with both ids in full: no 3-way merge can use this patch"
        yield Problem(patch.path, section.line, message, _REWRITE, "form-index")
    for number, hunk in enumerate(section.hunks):
        wrong = _hunk_form(section, number, hunk)
        if wrong is not None:
            yield Problem(patch.path, hunk.line, wrong, _REWRITE, "form-hunk")


def _hunk_form(section: FilePatch, number: int, hunk: Hunk) -> str | None:
    if max(hunk.leading, hunk.trailing) > _CONTEXT or hunk.gap > 2 * _CONTEXT:
        return f"the hunk is wider than needed: {_CONTEXT} lines of context are enough"
    if section.change in {Change.ADD, Change.DELETE}:
        return None
    is_last = number + 1 == len(section.hunks)
    starts_inside = min(hunk.old_start, hunk.new_start) > 1
    if (starts_inside and hunk.leading < _CONTEXT) or (not is_last and hunk.trailing < _CONTEXT):
        return f"the hunk has less than {_CONTEXT} lines of context: it may land anywhere"
    return None


def _check_heads(patches: Sequence[Patch]) -> Iterator[Problem]:
    """Compare header and message with those that git formats from the commit that they make."""
    heads = _canonical_heads([patch.mail for patch in patches if patch.mail is not None])
    for patch, head in zip(patches, heads, strict=True):
        diff = patch.mail.diff if patch.mail else b""
        actual = patch.raw.removesuffix(diff)
        wanted = head + b"\n" if diff else head
        if actual != wanted:
            yield first_difference(patch, actual, wanted, "form-head")


def first_difference(patch: Patch, actual: bytes, wanted: bytes, rule: str) -> Problem:
    """Return the problem at the first line where ``actual`` is not ``wanted``."""
    pairs = zip(actual.split(b"\n"), wanted.split(b"\n"), strict=False)
    number, lines = next(
        ((i, pair) for i, pair in enumerate(pairs, 1) if pair[0] != pair[1]),
        (actual.count(b"\n") + 1, (b"(end)", b"(more)")),
    )
    found, expected = (line.decode("utf-8", "backslashreplace") for line in lines)
    message = f"not canonical: {found!r}, where git writes {expected!r}"
    return Problem(patch.path, number, message, _REWRITE, rule)


def _canonical_heads(mails: Sequence[Mail]) -> tuple[bytes, ...]:
    """Return what git writes above the diff of each mail: patches of empty commits."""
    with tempfile.TemporaryDirectory(prefix="mxtree-lint-") as folder:
        repo = Path(folder)
        git("init", "--quiet", "--bare", "--template=", repo)
        tree = git("mktree", cwd=repo).decode("ascii").strip()
        base = git_text("commit-tree", tree, "-m", "base", cwd=repo)
        with BorrowedObjects(repo) as private:
            stream = CommitStream(private, base)
            for mail in mails:
                stream.commit(mail, Edit(frozenset(), {}))
            made = stream.finish()
        return format_range(repo, base, made[-1][0]) if made else ()
