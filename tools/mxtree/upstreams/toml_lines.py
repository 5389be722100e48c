# SPDX-License-Identifier: Apache-2.0
"""On which line of a TOML file is a key? (`tomllib` does not say.)"""

from __future__ import annotations

import re

import tomllib

_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?$")
_KEY = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'|[.\s])+?)\s*=")


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line number (from 1) of each table header and each key, by its full path.

    Keys inside multi-line values and inline tables are not looked for.
    """
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _parts(header[1])
            for depth in range(1, len(table) + 1):
                lines.setdefault(table[:depth], number)
        elif key := _KEY.match(line):
            lines.setdefault(table + _parts(key[1]), number)
    return lines


def _parts(dotted: str) -> tuple[str, ...]:
    """Split ``a."b.c"`` as TOML does: parse it as a key and walk down."""
    try:
        node: object = tomllib.loads(f"{dotted} = 0")
    except tomllib.TOMLDecodeError:
        return (dotted.strip(),)
    parts = []
    while isinstance(node, dict):
        key = next(iter(node))
        parts.append(key)
        node = node[key]
    return tuple(parts)
