# SPDX-License-Identifier: Apache-2.0
"""One text hunk of a diff."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mxtree.series.lines import Lines

HUNK_START = b"@@ -"
_HEADER = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(?: |$)")
_NO_NEWLINE = b"\\ No newline at end of file"
_INNER_CONTEXT = re.compile(rb"(?<=[-+]) +(?=[-+])")


@dataclass(frozen=True, slots=True)
class Hunk:
    """One text hunk; ``old`` and ``new`` are lines with their line ends.

    ``leading`` and ``trailing`` count the context lines around the outermost changes, ``gap`` the
    longest run of them between two changes.
    """

    line: int
    header: bytes
    old_start: int
    new_start: int
    old: list[bytes]
    new: list[bytes]
    leading: int
    trailing: int
    gap: int


def read_hunk(lines: Lines) -> Hunk:
    """Read the hunk that comes next.

    Raises `UnusualDiffError` when it does not have exactly the lines that its header says.
    """
    header, line = lines.peek(), lines.number
    match = _HEADER.match(header)
    if match is None:
        raise lines.unusual("malformed hunk header")
    lines.at += 1
    n_old, n_new = (1 if count is None else int(count) for count in (match[2], match[4]))
    old, new, kinds = _read_body(lines, n_old, n_new)
    return Hunk(
        line=line,
        header=header,
        old_start=int(match[1]),
        new_start=int(match[3]),
        old=old,
        new=new,
        leading=len(kinds) - len(kinds.lstrip(b" ")),
        trailing=len(kinds) - len(kinds.rstrip(b" ")),
        gap=max((len(run) for run in _INNER_CONTEXT.findall(kinds)), default=0),
    )


def _read_body(lines: Lines, n_old: int, n_new: int) -> tuple[list[bytes], list[bytes], bytes]:
    """Return the old lines, the new lines, and the kind (" ", "-", "+") of each line read."""
    old: list[bytes] = []
    new: list[bytes] = []
    kinds = bytearray()
    while len(old) < n_old or len(new) < n_new:
        text = b"?" if lines.is_at_end else lines.peek()
        # Some writers strip the blank of an empty context line.
        kind, body = text[:1] or b" ", text[1:] + b"\n"
        if kind not in b" -+":
            raise lines.unusual("the hunk is shorter than its header says")
        lines.at += 1
        sides = [side for side, kept in ((old, b" -"), (new, b" +")) if kind in kept]
        if lines.peek()[:1] == b"\\":
            body = body[:-1]
            _skip_remark(lines)
        for side in sides:
            side.append(body)
        kinds += kind
    unended = [line for side in (old, new) for line in side[:-1] if not line.endswith(b"\n")]
    if len(old) != n_old or len(new) != n_new or not kinds.strip(b" ") or unended:
        raise lines.unusual("the hunk does not have the lines that its header says")
    return old, new, bytes(kinds)


def _skip_remark(lines: Lines) -> None:
    if lines.peek() != _NO_NEWLINE:
        raise lines.unusual("a line that is no part of a hunk")
    lines.at += 1
