# SPDX-License-Identifier: Apache-2.0
"""RFC 2047 encoded words in mail headers, in the form that git writes and reads them."""

from __future__ import annotations

import binascii
import re

_WORD = re.compile(rb"=\?(?:utf-8|us-ascii)\?([bq])\?([!->@-~]*)\?=", re.IGNORECASE)
_BETWEEN = re.compile(rb"(\?=)\s+(?==\?)")
_HEX = re.compile(rb"=([0-9A-Fa-f]{2})")


def decode_words(value: bytes) -> bytes | None:
    """Return a header value decoded to UTF-8, or None when git itself should judge it.

    White space between two encoded words belongs to neither and is dropped.
    """
    if b"=?" not in value:
        return value if _is_utf8(value) else None
    parts = _WORD.split(_BETWEEN.sub(rb"\1", value))
    out = [parts[0]]
    for encoding, text, rest in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        decoded = _decode_b(text) if encoding in b"bB" else _decode_q(text)
        if decoded is None:
            return None
        out += [decoded, rest]
    if any(b"=?" in literal for literal in parts[::3]):
        return None
    joined = b"".join(out)
    return joined if _is_utf8(joined) and b"\0" not in joined else None


def _decode_q(text: bytes) -> bytes | None:
    if b"=" in _HEX.sub(b"", text):
        return None
    spaced = text.replace(b"_", b" ")
    return _HEX.sub(lambda match: bytes([int(match[1], 16)]), spaced)


def _decode_b(text: bytes) -> bytes | None:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        return None


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
