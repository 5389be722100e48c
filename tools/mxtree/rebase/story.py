# SPDX-License-Identifier: Apache-2.0
"""A rebase or forecast with what a reviewer wants beside it: range-diff and dependencies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from mxtree.errors import FatalError
from mxtree.git import run_git
from mxtree.rebase.hunks import old_spans
from mxtree.rebase.model import Rebase
from mxtree.rebase.store import Store, write_durably

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxtree.project import Project
    from mxtree.rebase.work import Work
    from mxtree.series import Patch

#: Blaming every hunk of a longer series takes minutes; its graph would not be read anyway.
GRAPH_LIMIT = 60

_BLAMED = re.compile(rb"^(\^?)([0-9a-f]{39,40}) ", re.MULTILINE)


class Story(BaseModel):
    """One rebase as it is reported. ``dependencies`` are (patch, patch it builds on) by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rebase: Rebase
    range_diff: str = ""
    dependencies: tuple[tuple[str, str], ...] = ()


class Report(BaseModel):
    """What `mxtree report rebase` renders: the last rebase, or the last forecast."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    kind: Literal["rebase", "forecast"]
    upstream: str
    stories: tuple[Story, ...]


def tell(work: Work, rebase: Rebase, old: Sequence[Patch]) -> Story:
    """Work out the range-diff and the dependencies of a series."""
    return Story(
        rebase=rebase,
        range_diff=_range_diff(work, rebase),
        dependencies=tuple(_graph(work, rebase, old)),
    )


def save(project: Project, report: Report) -> None:
    """Keep a report for `mxtree report rebase`."""
    path = Store.of(project, report.upstream).report
    write_durably(path, report.model_dump_json(indent=2).encode() + b"\n")


def load_last(project: Project, upstream: str | None) -> Report:
    """Return the newest report (of one upstream). Raises `FatalError` when there is none."""
    folder = project.root / ".mxtree" / "rebase"
    pattern = f"{upstream or '*'}.report.json"
    found = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns)
    if not found:
        raise FatalError(
            f"there is no rebase to report on{f' for {upstream}' if upstream else ''}",
            hint="mxtree rebase UPSTREAM --onto VERSION --dry-run makes a forecast to report",
        )
    try:
        return Report.model_validate_json(found[-1].read_bytes())
    except ValidationError as error:
        raise FatalError(
            f"{found[-1]} is not a report that this mxtree can read",
            hint=f"remove it and run the rebase or forecast again: rm '{found[-1]}'",
        ) from error


def _range_diff(work: Work, rebase: Rebase) -> str:
    if not rebase.steps or rebase.tip == rebase.new.commit:
        return ""
    old = f"{rebase.old.commit}..{rebase.steps[-1].old_commit}"
    new = f"{rebase.new.commit}..{rebase.tip}"
    return work.git("range-diff", "--no-color", "--creation-factor=90", old, new).decode(
        "utf-8", "replace"
    )


def _graph(work: Work, rebase: Rebase, old: Sequence[Patch]) -> list[tuple[str, str]]:
    if len(rebase.steps) > GRAPH_LIMIT:
        return []
    return dependencies(work, rebase, old, of=frozenset(step.name for step in rebase.steps))


def dependencies(
    work: Work, rebase: Rebase, old: Sequence[Patch], *, of: frozenset[str]
) -> list[tuple[str, str]]:
    """Return (patch, patch whose lines it changes) for the patches called ``of``."""
    names = {step.old_commit: step.name for step in rebase.steps}
    edges: dict[tuple[str, str], None] = {}
    pairs = zip(rebase.steps, old, strict=True)
    for step, patch in ((step, patch) for step, patch in pairs if step.name in of):
        for path, span in old_spans(patch, context=1):
            lines = f"{span.first},{span.last}"
            before = f"{rebase.old.commit}..{step.old_commit}^"
            options = ("blame", "-l", "-s", "-L", lines, before, "--", path)
            blame = run_git(*options, cwd=work.path, ok=range(256)).stdout
            for boundary, commit in _BLAMED.findall(blame):
                name = None if boundary else names.get(commit.decode())
                if name:
                    edges[step.name, name] = None
    return list(edges)
