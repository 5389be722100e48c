# SPDX-License-Identifier: Apache-2.0
"""A rebase on disk: what is carried where, and what became of each patch so far."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict

from mxtree.errors import ExitCode, FatalError


class Outcome(StrEnum):
    """What became of a patch; every patch ends in exactly one."""

    #: The same file, byte for byte but for object ids.
    UNTOUCHED = "untouched"
    #: The same lines at other line numbers.
    OFFSET = "offset"
    #: Merged by git without a conflict; the lines around it (or part of it) are upstream's now.
    REFRESHED = "refreshed"
    #: Resolved by hand.
    RESOLVED = "resolved"
    #: Upstream has it.
    MERGED = "merged upstream"
    #: Left out by the user, who gave a reason.
    DROPPED = "dropped"
    #: Does not apply, and nobody has resolved it yet.
    CONFLICT = "conflict"


#: Outcomes that leave a patch in the new series.
KEPT = frozenset({Outcome.UNTOUCHED, Outcome.OFFSET, Outcome.REFRESHED, Outcome.RESOLVED})


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class End(_Model):
    """A base: the release or commit that a series sits on."""

    version: str
    tag: str
    source: dict[str, str]
    commit: str
    tree: str


class Step(_Model):
    """One patch. ``outcome`` is None while it waits; ``evidence`` says why it is what it is.

    ``follows`` are the patches left out of a forecast that a conflicting one builds on,
    ``replayed`` the files in which a resolution of the same conflict before was offered.
    """

    name: str
    title: str
    old_commit: str
    outcome: Outcome | None = None
    new_commit: str | None = None
    evidence: str = ""
    follows: tuple[str, ...] = ()
    replayed: tuple[str, ...] = ()


class Rebase(_Model):
    """The state of one rebase.

    ``tip`` is the commit that carries every patch done so far, ``between`` are the known releases
    between the bases, oldest first. ``series`` is the digest of the old
    series directory when the rebase began: it must not change under way.
    """

    schema_version: Literal[1] = 1
    upstream: str
    old: End
    new: End
    between: tuple[End, ...] = ()
    series: str
    steps: tuple[Step, ...]
    tip: str
    status: Literal["running", "conflict", "exec-failed", "done"] = "running"
    exec_command: str | None = None
    keep_pin: bool = False

    @property
    def position(self) -> int:
        """Index of the first patch that waits; the number of patches when none does."""
        waiting = (i for i, step in enumerate(self.steps) if step.outcome is None)
        return next(waiting, len(self.steps))

    @property
    def current(self) -> Step:
        """The patch at hand."""
        return self.steps[self.position]

    def with_step(self, index: int, **changes: object) -> Rebase:
        """Return the same rebase with one step changed."""
        steps = list(self.steps)
        steps[index] = steps[index].model_copy(update=changes)
        return self.model_copy(update={"steps": tuple(steps)})

    def counts(self) -> Counter[str]:
        """Return how many patches ended in each class, waiting ones under "waiting"."""
        return Counter(step.outcome or "waiting" for step in self.steps)

    def following(self) -> int:
        """Return how many conflicts may be gone once an earlier one is resolved."""
        return sum(bool(step.follows) for step in self.steps)

    def check_complete(self, patches_in_new_series: int) -> None:
        """Raise `FatalError` unless every patch of the old series is accounted for."""
        counts = self.counts()
        kept = sum(counts[outcome] for outcome in KEPT)
        if counts["waiting"] or counts[Outcome.CONFLICT] or kept != patches_in_new_series:
            raise FatalError(
                f"the rebase of {self.upstream} does not add up: {dict(counts)}, but the new "
                f"series has {patches_in_new_series} patches",
                hint="this is a defect of mxtree; nothing was written. Report it with "
                "`mxtree report rebase --format json`",
                code=ExitCode.COULD_NOT_CHECK,
            )
