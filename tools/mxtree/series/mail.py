# SPDX-License-Identifier: Apache-2.0
"""Read a patch file exactly as `git am --patch-format=mboxrd --keep --keep-cr --no-scissors` does.

Only the forms that `git format-patch` writes are read here. `parse_mail` answers None for every
other one (base64 bodies, legacy charsets, in-body headers, several mails in a file, ...): such a
patch goes through git itself, so that no rule is guessed.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass

from mxtree.series.rfc2047 import decode_words

#: The first line of a mail; git ignores which commit it names, and `--zero-commit` names none.
_SEPARATOR = re.compile(rb"From [0-9a-f]{40} Mon Sep 17 00:00:00 2001\n")
_HEADER = re.compile(rb"([!-9;-~]+):(?:[ \t]([^ \t].*))?", re.DOTALL)

#: Where the message ends for git: a diff, a CVS header, or a line of three dashes.
MESSAGE_END = re.compile(rb"^(?:diff -|Index: |--- [^ \t\r\n]|---[ \t\r]*$)", re.MULTILINE)

#: A first body line that git takes for a header, and so out of the message.
IN_BODY_HEADER = re.compile(rb"(?:(?:from|subject|date):\s|>?from\s|\[patch\]\s)", re.IGNORECASE)

_QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)

_MONTHS = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_DATE = re.compile(
    rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (\d{1,2}) ([A-Z][a-z]{2}) (\d{4}) "
    rb"([01]\d|2[0-3]):([0-5]\d):([0-5]\d) ([+-])(\d{2})([0-5]\d)"
)
_AUTHOR = re.compile(rb'(?:"(?P<quoted>[^"\\@<>()]*)"|(?P<name>[^"\\@<>()]*)) <(?P<email>[^ <>]+)>')

#: Bytes that git cuts from both ends of a name; a final full stop ("Acme Inc.") is among them
#: only in older versions, and cutting it would make the commit depend on the version of git.
_CRUD = bytes(range(33)) + b",:;<>\"\\'"

#: git replaces a longer name by the email address.
_MAXIMUM_NAME = 60

_PLAIN_MIME = {
    b"mime-version": {b"1.0"},
    b"content-type": {
        b"text/plain",
        *(b"text/plain; charset=" + name for name in (b"utf-8", b'"utf-8"', b"us-ascii")),
    },
    b"content-transfer-encoding": {b"8bit", b"7bit"},
}

#: Headers that git reads; all others (Received, References, ...) may come more than once.
_READ = frozenset({b"from", b"date", b"subject", *_PLAIN_MIME})

#: The author as `format-patch --from` and `send-email` put it: first thing in the message.
_IN_BODY_FROM = re.compile(rb"\n*From: ([^\n]+)\n\n")


@dataclass(frozen=True)
class Mail:
    """What git reads out of one patch file.

    ``author`` is git's identity line (``Name <email> seconds zone``), ``message`` the whole commit
    message, ``diff`` everything behind it and ``diff_line`` the line of the file where it begins.
    """

    author: bytes
    message: bytes
    diff: bytes
    diff_line: int


def parse_mail(raw: bytes) -> Mail | None:
    """Return the mail in ``raw``, or None when only git itself should judge it."""
    first = _SEPARATOR.match(raw)
    if first is None or not raw.endswith(b"\n") or b"\nFrom " in raw or b"\0" in raw:
        return None
    head_end = raw.find(b"\n\n", first.end()) + 1
    if not head_end:
        return None
    headers = parse_headers(raw[first.end() : head_end])
    if headers is None or not _is_plain(headers):
        return None
    end = MESSAGE_END.search(raw, head_end)
    body_end = end.start() if end else len(raw)
    text, diff = raw[head_end:body_end], raw[body_end:]
    in_body = _IN_BODY_FROM.match(text) if diff else None
    if in_body is not None:
        headers[b"from"] = in_body[1].rstrip(b" \t\r")
        text = text[in_body.end() :]
    author, subject = _author(headers), decode_words(headers.get(b"subject", b""))
    body = _body(text, may_have_header=in_body is None)
    if b">From " in diff and _QUOTED_FROM.search(diff):
        return None
    if not author or not subject or subject != subject.strip(b" \t\n") or body is None:
        return None
    return Mail(
        author=author,
        message=strip_space(subject + b"\n\n" + body),
        diff=diff,
        diff_line=1 + raw.count(b"\n", 0, body_end),
    )


def parse_headers(head: bytes) -> dict[bytes, bytes] | None:
    """Return the unfolded header fields by lower-case name.

    None when a line is malformed, or when a field that git reads stands twice.
    """
    lines: list[bytes] = []
    for line in head.split(b"\n")[:-1]:
        if line[:1] in {b" ", b"\t"}:
            if not lines:
                return None
            lines[-1] += b" " + line[1:].rstrip(b" \t\r")
        else:
            lines.append(line.rstrip(b" \t\r"))
    fields: dict[bytes, bytes] = {}
    for line in lines:
        match = _HEADER.fullmatch(line)
        name = match[1].lower() if match else b""
        if match is None or (name in fields and name in _READ):
            return None
        fields[name] = match[2] or b""
    return fields


def _is_plain(headers: dict[bytes, bytes]) -> bool:
    return all(headers.get(name, b"").lower() in {b"", *ok} for name, ok in _PLAIN_MIME.items())


def _body(body: bytes, *, may_have_header: bool) -> bytes | None:
    """Return the message body without mboxrd quoting, or None when git would not take it as is."""
    text = _QUOTED_FROM.sub(rb"\1", body)
    if may_have_header and IN_BODY_HEADER.match(text.lstrip(b"\n")):
        return None
    return text if is_utf8(text) else None


def is_utf8(text: bytes) -> bool:
    """Return whether the bytes are valid UTF-8."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def strip_space(text: bytes) -> bytes:
    """Return a message as git stores it: no trailing blanks, no runs of blank lines."""
    lines = [line.rstrip(b" \t\r") for line in text.split(b"\n")]
    kept = [line for i, line in enumerate(lines) if line or (i and lines[i - 1])]
    return b"\n".join(kept).strip(b"\n") + b"\n"


def _author(headers: dict[bytes, bytes]) -> bytes | None:
    date = parse_date(headers.get(b"date", b""))
    sender = decode_words(headers.get(b"from", b""))
    match = _AUTHOR.fullmatch(sender) if sender else None
    if date is None or match is None:
        return None
    raw_name = match["name"] if match["quoted"] is None else match["quoted"]
    name, email = raw_name.strip(_CRUD), match["email"].strip(_CRUD)
    if not 0 < len(name) <= _MAXIMUM_NAME or b"@" not in email or re.search(rb"\s\s|[\n\t]", name):
        return None
    return name + b" <" + email + b"> " + date


def parse_date(text: bytes) -> bytes | None:
    """Return an RFC 2822 date as ``seconds zone``, or None when it has any other form."""
    match = _DATE.fullmatch(text)
    if match is None or match[2] not in _MONTHS:
        return None
    year, month, day = int(match[3]), _MONTHS.index(match[2]) + 1, int(match[1])
    if not 1970 < year < 2100 or not 1 <= day <= calendar.monthrange(year, month)[1]:
        return None
    clock = (int(match[4]), int(match[5]), int(match[6]))
    offset = (int(match[8]) * 60 + int(match[9])) * (-1 if match[7] == b"-" else 1)
    seconds = calendar.timegm((year, month, day, *clock)) - 60 * offset
    sign = b"-" if offset < 0 else b"+"
    return b"%d %s%s%s" % (seconds, sign, match[8], match[9])
