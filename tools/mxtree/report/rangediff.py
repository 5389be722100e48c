# SPDX-License-Identifier: Apache-2.0
"""The lines of `git range-diff`, each with what it says."""

from __future__ import annotations

import re
from typing import NamedTuple

from mxtree.report import escape

# "3:  6e8bd5e ! 3:  b2366bf Subject"; a dash stands for a side that has no such patch.
_PAIR = re.compile(r" *(?:\d+|-): +(?:[0-9a-f]+|-+) ([=!<>]) +(?:\d+|-): +(?:[0-9a-f]+|-+)(?: |$)")
_PAIRS = {"=": "same", "!": "differs", "<": "gone", ">": "new"}
_INDENT = "    "
_OUTER = {"+": "plus", "-": "minus", "@": "hunk"}
_INNER = {"+": "added", "-": "removed", "@": "hunk"}


class Line(NamedTuple):
    """One line and its classes: of the pair, or the outer and the inner sign of a diff of diffs."""

    text: str
    classes: str


def lines_of(range_diff: str) -> list[Line]:
    """Return the lines of a range-diff."""
    return [Line(line, _classes(line)) for line in escape.visible(range_diff).split("\n") if line]


def _classes(line: str) -> str:
    pair = _PAIR.match(line)
    if pair:
        return f"pair {_PAIRS[pair[1]]}"
    if not line.startswith(_INDENT):
        return ""
    outer, inner = line[4:5], line[5:6]
    if outer == "@":
        return "hunk"
    return " ".join(filter(None, (_OUTER.get(outer, ""), _INNER.get(inner, ""))))
