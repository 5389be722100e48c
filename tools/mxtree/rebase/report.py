# SPDX-License-Identifier: Apache-2.0
"""What a rebase or a forecast prints on the terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mxtree.rebase.forecast import applies
from mxtree.rebase.model import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxtree.rebase.model import Rebase
    from mxtree.rebase.story import Story

_STYLES = {
    Outcome.UNTOUCHED: "green",
    Outcome.OFFSET: "green",
    Outcome.REFRESHED: "yellow",
    Outcome.RESOLVED: "yellow",
    Outcome.MERGED: "cyan",
    Outcome.DROPPED: "magenta",
    Outcome.CONFLICT: "bold red",
}


def print_rebase(rebase: Rebase, *, as_json: bool) -> None:
    """Print what became of each patch of a rebase that is done."""
    if as_json:
        print(rebase.model_dump_json())
        return
    _print_steps(rebase)
    print(f"{rebase.upstream} {rebase.old.version} -> {rebase.new.version}: {summary(rebase)}")
    print(f"next: mxtree report rebase (review it), mxtree rebase {rebase.upstream} --finish")


def print_forecasts(
    old: str, stories: Sequence[Story], *, as_json: bool, next_steps: str = ""
) -> None:
    """Print the forecast of one release in full with ``next_steps``, of several as a line each."""
    rebases = [story.rebase for story in stories]
    if as_json:
        print(json.dumps([json.loads(rebase.model_dump_json()) for rebase in rebases]))
        return
    for rebase in rebases if len(rebases) == 1 else ():
        _print_steps(rebase)
    for rebase in rebases:
        print(f"{rebase.upstream} {old} -> {rebase.new.version}: {summary(rebase)}")
    if not rebases:
        print(f"no pinned release is newer than {old}")
    if len(rebases) == 1:
        print(f"next: {next_steps}")


def print_last_good(upstream: str, old: str, stories: Sequence[Story]) -> None:
    """Say which release is the newest that the series applies to."""
    good = [story.rebase.new.version for story in stories if applies(story.rebase)]
    newest = good[0] if good else old
    print(f"newest release on which the series of {upstream} {old} applies: {newest}")


def summary(rebase: Rebase) -> str:
    """Return the counts of the classes in one line; they add up to the series."""
    counts = rebase.counts()
    parts = [f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome]]
    if rebase.following():
        parts[-1] += f" ({rebase.following()} of them may follow from the others)"
    noun = "patch" if len(rebase.steps) == 1 else "patches"
    return f"{len(rebase.steps)} {noun}: {', '.join(parts) or 'nothing to do'}"


def _print_steps(rebase: Rebase) -> None:
    """Print a table on a terminal, and one line a patch (nothing cut) anywhere else."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(_table(rebase))
        return
    for step in rebase.steps:
        why = f": {step.evidence}" if step.evidence else ""
        print(f"{step.name} {step.outcome or 'waiting'}{why}")


def _table(rebase: Rebase) -> Table:
    table = Table("patch", "class", "why", box=None, pad_edge=False, header_style="bold")
    for step in rebase.steps:
        style = _STYLES[step.outcome] if step.outcome else ""
        table.add_row(Text(step.name), Text(step.outcome or "waiting", style), Text(step.evidence))
    return table
