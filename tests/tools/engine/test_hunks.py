# SPDX-License-Identifier: Apache-2.0
"""Where hunks land, against `git apply`: offsets, anchors, overlaps."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_history import FILE, Commit, repository

from mxtree.engine.hunks import LooseMatchError, NoMatchError, apply_hunks, split_lines
from mxtree.git import git, run_git
from mxtree.series.diff import Hunk, parse_diff

#: So few that a hunk finds its lines in many places.
FEW = (b"a", b"b", b"c", b"")

WHO = ("Ada L <ada@example.org>", "1796083200 +0000")


class Case(NamedTuple):
    """A file, what a patch makes of it, and the file that the patch meets."""

    base: bytes
    wanted: bytes
    elsewhere: bytes


@st.composite
def cases(draw: st.DrawFn) -> Case:
    base = [draw(st.sampled_from(FEW)) for _ in range(draw(st.integers(4, 40)))]
    ends = [b"\n" if draw(st.integers(0, 4)) else b"" for _ in range(3)]
    versions = (base, _spoil(draw, base), _spoil(draw, base))
    return Case(*(b"\n".join(rows) + end for rows, end in zip(versions, ends, strict=True)))


def _spoil(draw: st.DrawFn, lines: list[bytes]) -> list[bytes]:
    lines = list(lines)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines)))
        cut = draw(st.integers(0, 2))
        lines[at : at + cut] = draw(st.lists(st.sampled_from((*FEW, b"new")), max_size=3))
    return lines


def _diff(found: list[Case], context: int) -> bytes:
    commits = [
        Commit({b"%d" % i: (FILE, case[version]) for i, case in enumerate(found)}, "x", *WHO)
        for version in (0, 1)
    ]
    with repository(commits) as (repo, ids):
        return git("diff", f"-U{context}", "--full-index", *ids, cwd=repo)


def _git_apply(diff: bytes, found: list[Case]) -> list[bytes | None]:
    """Return each file after `git apply`, or None where a hunk was rejected."""
    folder = Path(tempfile.mkdtemp(prefix="apply-"))
    try:
        for number, case in enumerate(found):
            (folder / str(number)).write_bytes(case.elsewhere)
        run_git("apply", "--reject", cwd=folder, stdin=diff, ok=(0, 1))
        rejected = {path.stem for path in folder.glob("*.rej")}
        return [
            None if str(number) in rejected else (folder / str(number)).read_bytes()
            for number in range(len(found))
        ]
    finally:
        shutil.rmtree(folder)


def _engine_apply(case: Case, hunks: list[Hunk]) -> bytes | None:
    try:
        return b"".join(apply_hunks(split_lines(case.elsewhere), hunks).lines)
    except NoMatchError:
        return None


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(st.lists(cases(), min_size=20, max_size=30), st.integers(0, 3))
def test_hunks_land_where_git_apply_puts_them(found: list[Case], context: int) -> None:
    diff = _diff(found, context)
    assume(diff)
    expected = _git_apply(diff, found)
    for section in parse_diff(diff):
        number = int(section.new_path)
        try:
            result = _engine_apply(found[number], section.hunks)
        except LooseMatchError:
            assert context == 0 or b"\\ No newline" in diff
            continue
        assert result == expected[number], (found[number], section.hunks)
