# SPDX-License-Identifier: Apache-2.0
"""Show a few lines of a file so that the difference is in sight."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxtree.series.diff import Hunk

#: Lines and columns of an excerpt: three of them and their frame fit on one screen.
_ROWS = 9
_COLUMNS = 92


class Place(NamedTuple):
    """Where a hunk fits best: first line (from 0), and how many of its lines are equal there."""

    start: int
    equal: int


def best_place(hunk: Hunk, lines: Sequence[bytes]) -> Place:
    """Return the place that most lines of the hunk point to, rare lines first, near ones next."""
    expected = max(hunk.new_start - 1, 0)
    votes: dict[int, float] = {}
    where: dict[bytes, list[int]] = {}
    for number, line in enumerate(lines):
        where.setdefault(line.strip(), []).append(number)
    for offset, line in enumerate(hunk.old):
        found = where.get(line.strip(), ())
        for number in found:
            if number >= offset:
                # A line that is all over the file (blank, closing bracket) says little.
                votes[number - offset] = votes.get(number - offset, 0) + 1 / len(found)
    if not votes:
        return Place(min(expected, len(lines)), 0)
    start = min(votes, key=lambda place: (-votes[place], abs(place - expected)))
    there = lines[start : start + len(hunk.old)]
    return Place(start, sum(a == b for a, b in zip(hunk.old, there, strict=False)))


def excerpt(lines: Sequence[bytes], other: Sequence[bytes]) -> list[str]:
    """Return ``lines`` for the screen, ``!`` at those that ``other`` does not have."""
    matcher = SequenceMatcher(None, lines, other, autojunk=False)
    same = {block.a + i for block in matcher.get_matching_blocks() for i in range(block.size)}
    marks = [" " if i in same or not other else "!" for i in range(len(lines))]
    first = _window(marks)
    shown = [
        f"  {mark} {show_line(line)}"
        for mark, line in list(zip(marks, lines, strict=True))[first : first + _ROWS]
    ]
    if first:
        shown.insert(0, f"    ... {first} more above")
    rest = len(lines) - first - _ROWS
    return [*shown, f"    ... {rest} more below"] if rest > 0 else shown


def _window(marks: list[str]) -> int:
    if len(marks) <= _ROWS or "!" not in marks:
        return 0
    return max(0, min(marks.index("!") - 2, len(marks) - _ROWS))


def show_line(line: bytes) -> str:
    """Return a line of a file for the screen: one row, with what is invisible made visible."""
    text = line.removesuffix(b"\n").decode("utf-8", "backslashreplace").replace("\t", "    ")
    text = text.replace("\r", "\\r")
    if not line.endswith(b"\n"):
        text += "  <no line end>"
    visible = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return visible if len(visible) <= _COLUMNS else visible[: _COLUMNS - 3] + "..."


def invisible_reason(hunk: Hunk, lines: Sequence[bytes], there: Sequence[bytes]) -> list[str]:
    """Return a remark when the excerpts alone do not show why the hunk does not fit."""
    old, new, there = list(hunk.old), list(hunk.new), list(there)
    if old == there:
        if not hunk.trailing:
            return ["the lines are the same, but the patch expects the end of the file behind them"]
        return ["the lines are the same, but not at the beginning of the file, or hunks overlap"]
    if [line.rstrip(b"\r\n") for line in old] == [line.rstrip(b"\r\n") for line in there]:
        return ["the two differ in line ends only (CR LF, LF, none)"]
    if [line.split() for line in old] == [line.split() for line in there]:
        return ["the two differ in white space only"]
    places = (i for i in range(len(lines) - len(new) + 1) if list(lines[i : i + len(new)]) == new)
    at = next(places, None) if new else None
    return [f"what the patch wants is there already, at line {at + 1}"] if at is not None else []
