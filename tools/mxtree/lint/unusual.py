# SPDX-License-Identifier: Apache-2.0
"""Why a patch file is not the plain mail that `git format-patch` writes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mxtree.series.mail import IN_BODY_HEADER, is_utf8, parse_headers

if TYPE_CHECKING:
    from collections.abc import Iterator

_SEPARATOR = re.compile(rb"From [0-9a-f]{40} Mon Sep 17 00:00:00 2001\n")


def why_unusual(raw: bytes) -> tuple[int, str]:
    """Return the line and the first reason that is found for a mail that `parse_mail` leaves."""
    return next(_reasons(raw), (1, "is a mail that `git format-patch` does not write"))


def _reasons(raw: bytes) -> Iterator[tuple[int, str]]:
    if _SEPARATOR.match(raw) is None:
        yield 1, "the first line is not the separator that `git format-patch` writes"
        return
    head, _, body = raw.partition(b"\n\n")
    headers = parse_headers(head.partition(b"\n")[2] + b"\n")
    first = head.count(b"\n") + 3
    if headers is None:
        yield 2, "a mail header line is malformed or stands twice"
    for name in (b"content-transfer-encoding", b"content-type"):
        value = (headers or {}).get(name, b"").lower()
        if value not in {b"", b"7bit", b"8bit", b"text/plain; charset=utf-8"}:
            yield 2, f"the mail has {name.decode()} {value.decode('ascii', 'replace')!r}"
    if IN_BODY_HEADER.match(body.lstrip(b"\n")):
        blank = len(body) - len(body.lstrip(b"\n"))
        yield first + blank, "git takes the first line of the message for a mail header"
    at = body.find(b"\nFrom ")
    if at >= 0:
        yield first + body.count(b"\n", 0, at + 1), "git may take this line for the next mail"
    message = re.split(rb"^diff --git ", body, maxsplit=1, flags=re.MULTILINE)[0]
    if not is_utf8(message):
        good = message.decode("utf-8", "ignore").encode()
        same = next((i for i, (a, b) in enumerate(zip(message, good, strict=False)) if a != b), 0)
        yield first + message.count(b"\n", 0, same), "the message is not UTF-8"
    if b"\0" in raw:
        yield 1 + raw.count(b"\n", 0, raw.index(b"\0")), "a NUL byte"
