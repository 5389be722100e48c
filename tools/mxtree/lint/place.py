# SPDX-License-Identifier: Apache-2.0
"""Where in a patch file a line of its message stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.series.fields import parse_fields
from mxtree.series.mail import MESSAGE_END

if TYPE_CHECKING:
    from mxtree.series import Patch
    from mxtree.series.fields import Field


def located_fields(patch: Patch) -> tuple[Field, ...]:
    """Return the header fields with their lines in the file (0 when only git can read it)."""
    if patch.mail is None:
        return tuple(field._replace(line=0) for field in patch.header)
    head_end = patch.raw.index(b"\n\n") + 1
    end = MESSAGE_END.search(patch.raw, head_end)
    body = patch.raw[head_end : end.start() if end else len(patch.raw)]
    before = patch.raw.count(b"\n", 0, head_end)
    # The blank line behind the mail header is line 1 of what is parsed here.
    fields = parse_fields(body.decode("utf-8"))
    return tuple(field._replace(line=field.line + before) for field in fields)


def message_line(patch: Patch) -> int:
    """Return the line where the message body begins, which is where a field may be added."""
    return patch.raw.count(b"\n", 0, patch.raw.find(b"\n\n") + 2) + 1
