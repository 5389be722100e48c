# SPDX-License-Identifier: Apache-2.0
"""A report on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from mxtree.rebase.model import Outcome
from mxtree.report.escape import one_line
from mxtree.report.view import view_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxtree.rebase.story import Report
    from mxtree.report.view import Matrix, StoryView

_STYLES = {
    Outcome.UNTOUCHED: "green",
    Outcome.OFFSET: "green",
    Outcome.REFRESHED: "yellow",
    Outcome.RESOLVED: "blue",
    Outcome.MERGED: "cyan",
    Outcome.DROPPED: "magenta",
    Outcome.CONFLICT: "bold red",
}


def print_report(report: Report) -> None:
    """Print a report: bases, classes, why, dependencies; the range-diff is for the files."""
    view = view_of(report)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(one_line(view.title))
    if not view.stories:
        console.print("no pinned release is newer than the one that the series is made for")
    if view.matrix:
        console.print()
        _print_matrix(console, view.matrix)
    for story in view.stories:
        console.print()
        _print_story(console, story)
    console.print("next: mxtree report rebase -o FILE.html (with the range-diff and the graph)")


def _print_story(console: Console, story: StoryView) -> None:
    for base in story.bases:
        commit = base.commit[:12]
        console.print(f"{base.role} {base.version} ({base.tag}, {base.source}, commit {commit})")
    rows = [[row.name, row.outcome, row.why] for row in story.rows]
    _print_columns(console, rows)
    builds_on: dict[int, list[str]] = {}
    for patch, below in story.graph.edges:
        builds_on.setdefault(patch, []).append(story.graph.nodes[below].id)
    for patch, ids in builds_on.items():
        console.print(f"{story.graph.nodes[patch].id} builds on {', '.join(ids)}")
    console.print(story.sum)
    if story.state:
        console.print(Text(one_line(story.state), style="bold red"))


def _print_matrix(console: Console, matrix: Matrix) -> None:
    head = ["patch", *matrix.versions]
    _print_columns(console, [head, *([name, *classes] for name, _title, classes in matrix.rows)])


def _print_columns(console: Console, rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns; nothing is cut, on a terminal or in a pipe."""
    if not rows:
        return
    lines = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        text = Text()
        for cell, width in zip(line, [*widths[:-1], 0], strict=True):
            style = _STYLES[Outcome(cell)] if cell in set(Outcome) else ""
            text.append(cell, style=style).append(" " * (width - len(cell) + 2))
        text.rstrip()
        console.print(text)
