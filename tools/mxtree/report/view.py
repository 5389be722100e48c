# SPDX-License-Identifier: Apache-2.0
"""What the templates show of a report: plain values, nothing left to work out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxtree.errors import ExitCode, FatalError
from mxtree.report.classes import CLASSES, class_of
from mxtree.report.graph import graph_of
from mxtree.report.rangediff import lines_of

if TYPE_CHECKING:
    from mxtree.rebase.model import End, Rebase, Step
    from mxtree.rebase.story import Report, Story
    from mxtree.report.graph import Graph
    from mxtree.report.rangediff import Line


@dataclass(frozen=True)
class Base:
    """One end of a rebase, with the kind of its source and what identifies the content."""

    role: str
    version: str
    tag: str
    commit: str
    source: str
    identity: str


@dataclass(frozen=True)
class Row:
    """One patch."""

    id: str
    name: str
    title: str
    outcome: str
    why: str


@dataclass(frozen=True)
class StoryView:
    """One rebase. ``counts`` are (class, number) of the classes that occur."""

    heading: str
    state: str
    bases: tuple[Base, Base]
    between: tuple[str, ...]
    rows: tuple[Row, ...]
    counts: tuple[tuple[str, int], ...]
    graph: Graph
    range_diff: tuple[Line, ...]
    raw_range_diff: str
    #: How many conflicts of a forecast may be gone once an earlier one is resolved.
    following: int

    @property
    def total(self) -> int:
        return len(self.rows)

    @property
    def sum(self) -> str:
        """The counts as a sum that adds up."""
        parts = " + ".join(f"{number} {name}" for name, number in self.counts)
        patches = f"{self.total} patch{'es' * (self.total != 1)}"
        follow = f" ({self.following} of them may follow from the others)" * bool(self.following)
        return f"{patches} = {parts}{follow}" if parts else patches


@dataclass(frozen=True)
class Matrix:
    """Patch by release: the class of each patch in each forecast, "" where it is in none."""

    versions: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class ReportView:
    """A whole report. ``matrix`` is there when it has several stories."""

    title: str
    kind: str
    upstream: str
    stories: tuple[StoryView, ...]
    matrix: Matrix | None


def view_of(report: Report) -> ReportView:
    """Return what is shown of a report. Raises `FatalError` when its counts do not add up."""
    kind = "Forecast" if report.kind == "forecast" else "Rebase"
    stories = tuple(_story(story) for story in report.stories)
    versions = [story.bases[1].version for story in stories]
    old = f" {stories[0].bases[0].version}" if stories else ""
    return ReportView(
        title=f"{kind} of {report.upstream}{old}" + (f" onto {', '.join(versions)}" * bool(old)),
        kind=report.kind,
        upstream=report.upstream,
        stories=stories,
        matrix=_matrix(report) if len(stories) > 1 else None,
    )


def _story(story: Story) -> StoryView:
    rebase = story.rebase
    rows = tuple(_row(step, class_of(rebase, step)) for step in rebase.steps)
    counts = Counter(row.outcome for row in rows)
    if sum(counts[name] for name in CLASSES) != len(rebase.steps):
        raise FatalError(
            f"the classes of {dict(counts)} do not add up to {len(rebase.steps)} patches",
            hint="this is a defect of mxtree; `mxtree report rebase --format json` shows the state",
            code=ExitCode.COULD_NOT_CHECK,
        )
    return StoryView(
        heading=f"{rebase.old.version} \u2192 {rebase.new.version}",
        state=state_of(rebase),
        bases=(_base("from", rebase.old), _base("onto", rebase.new)),
        between=tuple(end.version for end in rebase.between),
        rows=rows,
        counts=tuple((name, counts[name]) for name in CLASSES if counts[name]),
        graph=graph_of(story),
        range_diff=tuple(lines_of(story.range_diff)),
        raw_range_diff=story.range_diff,
        following=rebase.following(),
    )


def state_of(rebase: Rebase) -> str:
    """Return what is wrong with a rebase that did not arrive, "" when it did."""
    if rebase.status == "done":
        return ""
    done = f"{rebase.position} of {len(rebase.steps)} patches are carried"
    if rebase.status == "conflict":
        return f"not done: conflict in {rebase.current.name}; {done}"
    if rebase.status == "exec-failed":
        return f"not done: the command of --exec failed ({rebase.exec_command}); {done}"
    return f"not done: interrupted; {done}"


def _base(role: str, end: End) -> Base:
    kind = end.source.get("kind", "unknown")
    identity = ", ".join(f"{k} {v}" for k, v in end.source.items() if k not in {"kind", "commit"})
    return Base(role, end.version, end.tag, end.commit, kind, identity)


def _row(step: Step, outcome: str) -> Row:
    return Row(step.name[:4], step.name, step.title, outcome, why=step.evidence)


def _matrix(report: Report) -> Matrix:
    titles: dict[str, str] = {}
    classes: list[dict[str, str]] = []
    for story in report.stories:
        steps = story.rebase.steps
        titles |= {step.name: step.title for step in steps}
        classes.append({step.name: class_of(story.rebase, step) for step in steps})
    versions = tuple(story.rebase.new.version for story in report.stories)
    rows = (
        (name, title, tuple(c.get(name, "") for c in classes)) for name, title in titles.items()
    )
    return Matrix(versions, tuple(rows))
