# SPDX-License-Identifier: Apache-2.0
"""The class that a patch is shown in, and what it means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.rebase.model import Outcome

if TYPE_CHECKING:
    from mxtree.rebase.model import Rebase, Step

WAITING = "waiting"
#: Merged by git; which of the kept classes it is shows only when the rebase is done.
CARRIED = "carried"

#: Every class that a patch can be shown in, in the order in which counts are listed.
CLASSES = (*(str(outcome) for outcome in Outcome), CARRIED, WAITING)

MEANING = {
    Outcome.UNTOUCHED: "the same file",
    Outcome.OFFSET: "the same lines at other line numbers",
    Outcome.REFRESHED: "merged by git; lines around it are upstream's new ones",
    Outcome.RESOLVED: "resolved by hand: read this one",
    Outcome.MERGED: "upstream has it",
    Outcome.DROPPED: "left out by the user",
    Outcome.CONFLICT: "does not apply and is not resolved",
    CARRIED: "merged by git so far",
    WAITING: "not carried yet",
}


def class_of(rebase: Rebase, step: Step) -> str:
    """Return the class that a patch is shown in."""
    if step.outcome is Outcome.UNTOUCHED and rebase.status != "done":
        return CARRIED
    return str(step.outcome or WAITING)
