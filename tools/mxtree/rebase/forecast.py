# SPDX-License-Identifier: Apache-2.0
"""What a rebase would do: the same walk in a throw-away work tree, conflicts noted and left out."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree.rebase.classify import classify, new_patches
from mxtree.rebase.model import Outcome
from mxtree.rebase.session import canonical_series, prepare
from mxtree.rebase.story import Story, tell
from mxtree.rebase.walk import Walk
from mxtree.rebase.work import Work

if TYPE_CHECKING:
    from mxtree.project import Project
    from mxtree.rebase.model import Rebase
    from mxtree.rebase.session import Request


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
        return _with_consequences(tell(Work(work), rebase, old))


def applies(rebase: Rebase) -> bool:
    """Return whether a forecast has no conflict."""
    return all(step.outcome is not Outcome.CONFLICT for step in rebase.steps)


def _with_consequences(story: Story) -> Story:
    """Tell the conflicts that may be gone once an earlier one is resolved from the others."""
    rebase = story.rebase
    left_out = {step.name for step in rebase.steps if step.outcome is Outcome.CONFLICT}
    for index, step in enumerate(rebase.steps):
        causes = [on for name, on in story.dependencies if name == step.name and on in left_out]
        if step.outcome is Outcome.CONFLICT and causes:
            reason = f"builds on {', '.join(causes)}, left out here: may apply once resolved"
            rebase = rebase.with_step(index, evidence=f"{step.evidence}; {reason}")
    return story.model_copy(update={"rebase": rebase})
