# SPDX-License-Identifier: Apache-2.0
"""What a rebase would do: the same walk in a throw-away work tree, conflicts noted and left out."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree.rebase.classify import classify, new_patches
from mxtree.rebase.model import Outcome
from mxtree.rebase.session import canonical_series, prepare
from mxtree.rebase.story import GRAPH_LIMIT, dependencies, tell
from mxtree.rebase.walk import Walk
from mxtree.rebase.work import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxtree.project import Project
    from mxtree.rebase.model import Rebase
    from mxtree.rebase.session import Request
    from mxtree.rebase.story import Story
    from mxtree.series import Patch


def forecast(project: Project, request: Request) -> Story:
    """Return the state that a rebase would end in; nothing in the project is touched.

    A patch that conflicts is left out, and the later ones are tried without it; a later conflict
    in a patch that builds on one left out says so.
    """
    with tempfile.TemporaryDirectory(prefix="mxtree-forecast-") as folder:
        work = Path(folder) / "work"
        rebase = prepare(project, work, request)
        old = canonical_series(work, rebase)
        rebase = Walk(Work(work), old, lambda _: None, forecast=True).run(rebase)
        rebase = classify(rebase, old, new_patches(Work(work), rebase))
        rebase = _with_consequences(Work(work), rebase, old)
        return tell(Work(work), rebase, old)


def applies(rebase: Rebase) -> bool:
    """Return whether a forecast has no conflict."""
    return all(step.outcome is not Outcome.CONFLICT for step in rebase.steps)


def _with_consequences(work: Work, rebase: Rebase, old: Sequence[Patch]) -> Rebase:
    """Tell the conflicts that may be gone once an earlier one is resolved from the others."""
    conflicts = [step.name for step in rebase.steps if step.outcome is Outcome.CONFLICT]
    builds_on = dependencies(work, rebase, old, of=frozenset(conflicts[:GRAPH_LIMIT]))
    for index, step in enumerate(rebase.steps):
        causes = tuple(on for name, on in builds_on if name == step.name and on in conflicts)
        if causes:
            reason = f"follows from {', '.join(sorted(causes))}: may apply once resolved"
            evidence = f"{step.evidence}; {reason}"
            rebase = rebase.with_step(index, evidence=evidence, follows=causes)
    return rebase
