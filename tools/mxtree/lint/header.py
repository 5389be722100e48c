# SPDX-License-Identifier: Apache-2.0
"""Header fields: all there, none empty, none unknown, each in its form."""

from __future__ import annotations

import re
from collections import Counter
from difflib import get_close_matches
from typing import TYPE_CHECKING

from mxtree.lint.place import located_fields, message_line
from mxtree.series import Problem
from mxtree.series.fields import OPTIONAL, PEOPLE, REPEATABLE, REQUIRED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxtree.series import Patch
    from mxtree.series.fields import Field

_KNOWN = (*REQUIRED, *OPTIONAL)
_URL = r"https?://\S+"
_COMMIT = r"[0-9a-f]{7,40}"
_PERSON = r"[^<>@]+ <[^<>\s]+@[^<>\s]+>"

#: What a value looks like, and how to say it.
_FORMS = {
    "Origin": (
        rf"(?:upstream|backport|vendor|other|{_URL}|commit:{_COMMIT})(?:, .+)?",
        "upstream, backport, vendor or other (or a URL, or commit:ID), then ', ' and who or what",
    ),
    "Upstream-Status": (
        rf"Pending|Submitted {_URL}|Backport (?:{_COMMIT}|{_URL})|Inappropriate \S.*",
        "Pending, Submitted URL, Backport COMMIT-OR-URL, or Inappropriate REASON",
    ),
    "Bug": (_URL, "a URL"),
    "Forwarded": (rf"no|not-needed|{_URL}", "a URL, no, or not-needed"),
    "Last-Update": (r"\d{4}-\d{2}-\d{2}", "a date: YYYY-MM-DD"),
    **dict.fromkeys(PEOPLE, (_PERSON, "Name <email>")),
}


def check_fields(patch: Patch) -> Iterator[Problem]:
    """Yield every problem of the header fields of one patch, at its line."""
    fields = located_fields(patch)
    names = {field.name for field in fields}
    for name in REQUIRED:
        if name not in names:
            fix = f"add '{name}: ...' below the subject"
            yield Problem(patch.path, message_line(patch), f"no field {name}", fix, "field-missing")
    counts = Counter(field.name for field in fields)
    for field in fields:
        yield from _check_name(patch, field, counts)
        yield from _check_value(patch, field)


def _check_name(patch: Patch, field: Field, counts: Counter[str]) -> Iterator[Problem]:
    if field.name not in _KNOWN:
        folded = {name.lower(): name for name in _KNOWN}
        near = get_close_matches(field.name.lower(), folded, 1)
        fix = f"did you mean {folded[near[0]]}?" if near else f"known: {', '.join(_KNOWN)}"
        message = f"unknown field {field.name}"
        yield Problem(patch.path, field.line, message, fix, "field-unknown")
    elif counts[field.name] > 1 and field.name not in REPEATABLE:
        message = f"{field.name} stands {counts[field.name]} times"
        yield Problem(patch.path, field.line, message, "merge them into one", "field-twice")


def _check_value(patch: Patch, field: Field) -> Iterator[Problem]:
    if not field.value:
        yield Problem(patch.path, field.line, f"{field.name} is empty", "fill it in", "field-empty")
        return
    form, words = _FORMS.get(field.name, (None, ""))
    if form is not None and re.fullmatch(form, field.value) is None:
        message = f"{field.name} is {field.value!r}"
        yield Problem(patch.path, field.line, message, f"write {words}", "field-form")
