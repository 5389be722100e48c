# SPDX-License-Identifier: Apache-2.0
"""Put the hunks of a text patch into a file by the rules of `git apply`: offsets, never fuzz.

The rules (git-apply(1) and what git 2.39 does): a hunk is tried at its new start line, then one
line below, one above, two below, and so on; one that starts at line 1 fits at the beginning only;
one without trailing context at the end only; no line that an earlier hunk wrote or saw as context
can match again. `mxtree` asks git itself about the two cases where its comparison is looser.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mxtree.series.diff import Hunk


class NoMatchError(Exception):
    """Hunk number ``index`` (from 0) fits nowhere in ``lines``, the file as it is by then."""

    def __init__(self, index: int, lines: Sequence[bytes]) -> None:
        super().__init__(f"hunk {index + 1} does not match")
        self.index = index
        self.lines = lines


class LooseMatchError(Exception):
    """A case where git compares more loosely than line by line."""


@dataclass(frozen=True)
class Placed:
    """A file after its hunks, and how far the worst of them lay from its line number."""

    lines: list[bytes]
    offset: int


def split_lines(content: bytes) -> list[bytes]:
    """Return the lines with their line feeds; the last may lack one."""
    lines = content.split(b"\n")
    last = lines.pop()
    out = [line + b"\n" for line in lines]
    if last:
        out.append(last)
    return out


def apply_hunks(content: Sequence[bytes], hunks: Sequence[Hunk]) -> Placed:
    """Apply ``hunks`` in order to the lines of a file.

    Raises `NoMatchError` for the first that fits nowhere and `LooseMatchError` for a case that
    git must decide.
    """
    lines = list(content)
    taken: list[tuple[int, int]] = []
    worst = 0
    for index, hunk in enumerate(hunks):
        place = _locate(lines, hunk, taken)
        if place is None:
            raise NoMatchError(index, lines)
        old, new = len(hunk.old), len(hunk.new)
        lines[place : place + old] = hunk.new
        shift = new - old
        taken = [(a + shift, b + shift) if a >= place + old else (a, b) for a, b in taken]
        taken.append((place, place + new))
        offset = abs(place - max(hunk.new_start - 1, 0))
        worst = max(worst, offset)
    return Placed(lines, worst)


def _locate(lines: list[bytes], hunk: Hunk, taken: list[tuple[int, int]]) -> int | None:
    old = hunk.old
    if not old and lines:
        if _is_anchored_above(hunk):
            return None
        raise LooseMatchError
    last = len(lines) - len(old)
    start = _first_try(hunk, last, len(lines))
    # Off its place, git takes a last context line without a line feed for one that has it.
    is_loose = bool(hunk.trailing) and not old[-1].endswith(b"\n")
    for place in _candidates(lines, hunk, start, last):
        if is_loose and place != start:
            raise LooseMatchError
        free = all(place + len(old) <= a or place >= b for a, b in taken)
        if free and lines[place : place + len(old)] == old:
            return place
    if is_loose:
        raise LooseMatchError
    return None


def _first_try(hunk: Hunk, last: int, count: int) -> int:
    if _is_anchored_above(hunk):
        return 0
    start = last if not hunk.trailing else max(hunk.new_start - 1, 0)
    return min(start, count) if start >= 0 else count


def _is_anchored_above(hunk: Hunk) -> bool:
    return hunk.old_start <= 1


def _candidates(lines: list[bytes], hunk: Hunk, start: int, last: int) -> Iterator[int]:
    """Yield the places where the hunk may fit, in git's order."""
    if last < 0:
        return
    if _is_anchored_above(hunk):
        if hunk.trailing or last == 0:
            yield 0
        return
    if not hunk.trailing:
        yield last
        return
    if start <= last:
        yield start
    first = hunk.old[0]
    others = [i for i in range(last + 1) if i != start and lines[i] == first]
    yield from sorted(others, key=lambda i: (abs(i - start), i < start))
