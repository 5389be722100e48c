# SPDX-License-Identifier: Apache-2.0
"""The lines that a patch wants to find."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from mxtree.series.diff import UnusualDiffError, parse_diff

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxtree.series import Patch


class Span(NamedTuple):
    """Lines ``first`` to ``last`` of a file, counted from 1; empty when ``last < first``."""

    first: int
    last: int


def old_spans(patch: Patch, *, context: int) -> Iterator[tuple[str, Span]]:
    """Yield path and lines of every text hunk, with up to ``context`` lines around the change.

    Yields nothing for a diff that only git can read.
    """
    try:
        sections = parse_diff(patch.mail.diff) if patch.mail else []
    except UnusualDiffError:
        return
    for section in sections:
        path = os.fsdecode(section.old_path)
        for hunk in section.hunks:
            # An insertion changes no line: what it hangs on is the lines beside it.
            is_insertion = hunk.leading + hunk.trailing >= len(hunk.old)
            around = max(context, 1) if is_insertion else context
            first = hunk.old_start + max(hunk.leading - around, 0)
            last = hunk.old_start + len(hunk.old) - 1 - max(hunk.trailing - around, 0)
            if hunk.old:
                yield path, Span(first, max(first, last))
