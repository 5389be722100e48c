# SPDX-License-Identifier: Apache-2.0
"""Paths in patches: git's C-style quoting."""

from __future__ import annotations

import re

#: What stands behind a backslash, and the byte that it means.
_ESCAPES = {ord(name): byte for name, byte in zip('abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True)}
_NAMES = {byte: b"\\%c" % name for name, byte in _ESCAPES.items()}
_QUOTED = re.compile(rb'"((?:[^"\\\n]|\\(?:[abtnvfr"\\]|[0-3][0-7]{2}))*)"')
_ESCAPE = re.compile(rb"\\([0-3][0-7]{2}|.)", re.DOTALL)


def quote(path: bytes) -> bytes:
    """Return the path as git writes it with core.quotePath on: quoted only when it must be."""
    if all(32 <= c < 127 and c not in b'"\\' for c in path):
        return path
    return b'"' + b"".join(_quote_byte(c) for c in path) + b'"'


def _quote_byte(c: int) -> bytes:
    named = _NAMES.get(c)
    if named is not None:
        return named
    return bytes([c]) if 32 <= c < 127 else b"\\%03o" % c


def unquote(text: bytes) -> tuple[bytes, bytes] | None:
    """Return the path that ``text`` begins with in quotes, and the rest; None without one."""
    match = _QUOTED.match(text)
    if match is None:
        return None
    return _ESCAPE.sub(_unescape, match[1]), text[match.end() :]


def _unescape(match: re.Match[bytes]) -> bytes:
    escape = match[1]
    return bytes([int(escape, 8) if len(escape) == 3 else _ESCAPES[escape[0]]])
