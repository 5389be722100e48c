# SPDX-License-Identifier: Apache-2.0
"""What a report is made of: sections with tables and charts, the same for HTML and Markdown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Tone = Literal["", "good", "bad", "warn", "code"]


@dataclass(frozen=True)
class Cell:
    """Text of a table cell and how it is to be read."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Table:
    """Rows under a head. With ``folded`` it opens on a click; ``caption`` says what it is."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """A part of a report. ``absent`` says what was not recorded; ``charts`` are SVG for HTML."""

    title: str
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    charts: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


@dataclass(frozen=True)
class Page:
    """A whole report. ``state`` is its one-line result, ``tone`` how that is to be read."""

    title: str
    state: str
    tone: Tone
    sections: tuple[Section, ...] = field(default=())


Value = Cell | str | int | float | None


def row(*values: Value) -> tuple[Cell, ...]:
    """Cells of plain values: None is an em dash, numbers are short."""
    return tuple(value if isinstance(value, Cell) else Cell(text_of(value)) for value in values)


def text_of(value: str | float | None) -> str:
    """A value as a report shows it."""
    if value is None:
        return "\u2014"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else value


def code(text: str | None) -> Cell:
    """A name, path or digest; an em dash for none."""
    return Cell(text, "code") if text else Cell("\u2014")
