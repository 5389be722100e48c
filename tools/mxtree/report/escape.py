# SPDX-License-Identifier: Apache-2.0
"""Text of patches in the languages of a report: nothing in a title may act as mark-up."""

from __future__ import annotations

import re
import unicodedata

# Control characters, and those that make text read in another order than it is stored.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_MARKUP = re.compile(r"[\\`*_~|$\[\]!]")
# GitHub makes links of names, numbers and addresses, and pictures of ":words:".
_LINKED = re.compile(r"([@#]|:(?=\S)|www(?=\.))", re.IGNORECASE)
_SAFE_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_RUNS = re.compile(r"`+")
_PLAIN = re.compile(r"[^A-Za-z0-9 .,()_/-]")


def visible(text: str) -> str:
    """Return the text with control and direction characters spelled out; tab and newline stay."""
    return _HIDDEN.sub(lambda match: f"<U+{ord(match[0]):04X}>", text)


def one_line(text: str) -> str:
    """Return visible text whose white space is single spaces."""
    return " ".join(visible(text).split())


def markdown(text: str) -> str:
    """Return text for a line or a table cell of GitHub's Markdown.

    Nothing in it is mark-up, a mention, an issue reference ("fixes #1" would close one) or a link.
    """
    escaped = _MARKUP.sub(r"\\\g<0>", one_line(text).replace("&", "&amp;"))
    escaped = escaped.replace("<", "&lt;").replace(">", "&gt;")
    # A zero-width space after it breaks each of them, and cannot be seen.
    return _LINKED.sub(r"\1&#8203;", escaped)


def code_span(text: str) -> str:
    """Return text as code that may stand in a table cell."""
    if _SAFE_CODE.fullmatch(text):
        return f"`{text}`"
    return f"<code>{markdown(text)}</code>"


def fence(text: str) -> str:
    """Return a code fence longer than any run of backticks in the text."""
    return "`" * max(3, 1 + max(map(len, _RUNS.findall(text)), default=0))


def mermaid(text: str) -> str:
    """Return text for a quoted label of a mermaid diagram."""
    return _PLAIN.sub(lambda match: f"#{ord(match[0])};", one_line(text))


def dot(text: str) -> str:
    """Return text as a quoted identifier of Graphviz."""
    return '"' + one_line(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def shorten(text: str, columns: int) -> str:
    """Return text that takes at most ``columns``, cut with an ellipsis."""
    line = one_line(text)
    taken = 0
    for index, character in enumerate(line):
        taken += 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1
        if taken > columns:
            return line[: max(index - 1, 0)].rstrip() + "\u2026"
    return line
