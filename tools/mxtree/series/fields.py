# SPDX-License-Identifier: Apache-2.0
"""The header fields of a patch: DEP-3 style, first thing in the commit message body."""

from __future__ import annotations

import re
from typing import NamedTuple

#: Why, whence, where upstream stands, what it touches, what proves it.
REQUIRED = ("Description", "Origin", "Upstream-Status", "Changes", "Proven-By")

#: Fields whose value is one person; each may stand more than once.
PEOPLE = ("Reviewed-by", "Acked-by", "Tested-by", "Co-authored-by", "Signed-off-by")

#: Fields that may be given: those of DEP-3 that say more than the required ones, and people.
OPTIONAL = ("Bug", "Forwarded", "Applied-Upstream", "Last-Update", *PEOPLE)

REPEATABLE = frozenset({"Bug", *PEOPLE})

_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9-]*):(?:[ \t]+(.*))?")


class Field(NamedTuple):
    """One field: the name as written, the value unfolded, its line in the message (1-based)."""

    name: str
    value: str
    line: int


def parse_fields(message: str) -> tuple[Field, ...]:
    """Return the fields of a commit message in order.

    Fields stand below the subject, each ``Name: value`` with continuation lines that begin with
    white space; blank lines between paragraphs of fields are fine. The first line that is none of
    these ends them; free text may follow it.
    """
    fields: list[Field] = []
    for number, line in enumerate(message.split("\n")[1:], 2):
        match = _FIELD.fullmatch(line)
        if match:
            fields.append(Field(match[1], (match[2] or "").strip(), number))
        elif line[:1] in {" ", "\t"} and fields:
            last = fields[-1]
            fields[-1] = last._replace(value=f"{last.value} {line.strip()}".strip())
        elif line:
            break
    return tuple(fields)


def split_list(value: str) -> tuple[str, ...]:
    """Return the items of a comma-separated field value."""
    return tuple(item for item in (part.strip() for part in value.split(",")) if item)
