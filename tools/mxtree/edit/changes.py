# SPDX-License-Identifier: Apache-2.0
"""Whether two versions of a patch say the same thing."""

from __future__ import annotations

import re

#: Lines that move when another patch or the upstream moves: object ids and line numbers.
_INDEX = re.compile(rb"index [0-9a-f]{7,40}\.\.[0-9a-f]{7,40}( [0-7]{6})?$")
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@.*$", re.DOTALL)


def same_content(old: bytes, new: bytes) -> bool:
    """Return whether two patch files differ at most in object ids and line numbers.

    Such a file still applies as it is, so that rewriting it would only make noise in a review.
    """
    return old == new or _stable(old) == _stable(new)


def _stable(patch: bytes) -> list[bytes]:
    lines = []
    in_diff = False
    for line in patch.split(b"\n"):
        in_diff = in_diff or line.startswith(b"diff --git ")
        if in_diff and _INDEX.match(line):
            continue
        match = _HUNK.match(line) if in_diff else None
        if match:
            lines.append(b"@@ %s %s" % (match[1] or b"1", match[2] or b"1"))
        else:
            lines.append(line)
    return lines
