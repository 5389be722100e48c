# SPDX-License-Identifier: Apache-2.0
"""Plain scalars of YAML 1.2: one reading for files, the command line and the environment.

Source: YAML 1.2.2, section 10.3.2 (core schema), without octal and hexadecimal integers.
"""

from __future__ import annotations

import re

Scalar = None | bool | int | float | str

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_BOOL = {
    text: text.lower() == "true" for text in ("true", "True", "TRUE", "false", "False", "FALSE")
}
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_UNSAFE = re.compile(r"[\s#:,\[\]{}&*!|>'\"%@`$]|^[-?<=~]|^$")


def read_scalar(text: str) -> Scalar:
    """The value of an unquoted scalar."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def write_scalar(value: Scalar) -> str:
    """Text that ``read_scalar`` (or a quoted scalar) reads as exactly ``value``."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    return value if _is_plain(value) else _quoted(value)


def _is_plain(value: str) -> bool:
    """Whether a text may stand without quotes: read as text, with no character that is YAML's."""
    harmless = value.isascii() and value.isprintable() and not _UNSAFE.search(value)
    return harmless and isinstance(read_scalar(value), str)


def _quoted(value: str) -> str:
    """A double-quoted scalar; a dollar sign is doubled, or it would begin a variable."""
    escaped = "".join(_escape(character) for character in value)
    return f'"{escaped}"'


def _escape(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character == "$":
        return "$$"
    if character.isprintable():
        return character
    return f"\\U{ord(character):08x}"
