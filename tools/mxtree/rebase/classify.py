# SPDX-License-Identifier: Apache-2.0
"""Compare a patch before and after: untouched, offset, or refreshed, and what upstream took."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mxtree.edit.changes import same_content
from mxtree.rebase.model import KEPT, Outcome, Rebase
from mxtree.series import Patch
from mxtree.series.canonical import format_range

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mxtree.rebase.work import Work


def new_patches(work: Work, rebase: Rebase) -> dict[str, bytes]:
    """Return the canonical bytes of every patch that was kept, by its name, in order."""
    commits = work.log(rebase.new.commit, rebase.tip)
    raw = format_range(work.path, rebase.new.commit, rebase.tip) if commits else ()
    by_commit = dict(zip(commits, raw, strict=True))
    return {
        step.name: by_commit[step.new_commit]
        for step in rebase.steps
        if step.outcome in KEPT and step.new_commit
    }


def classify(rebase: Rebase, old: Sequence[Patch], new: Mapping[str, bytes]) -> Rebase:
    """Return the rebase with the class of each patch that git carried over by itself."""
    for index, (step, patch) in enumerate(zip(rebase.steps, old, strict=True)):
        if step.outcome is Outcome.UNTOUCHED and step.name in new:
            outcome, evidence = _compare(patch.raw, new[step.name])
            rebase = rebase.with_step(index, outcome=outcome, evidence=evidence)
        elif step.outcome is Outcome.RESOLVED and step.name in new:
            by_hand = _by_hand(patch.raw, new[step.name])
            # Classified before already: a finished rebase may be continued once more.
            known = step.evidence.removesuffix(by_hand).removesuffix("; ")
            evidence = "; ".join(filter(None, (known, by_hand)))
            rebase = rebase.with_step(index, evidence=evidence)
    return rebase


def _compare(old: bytes, new: bytes) -> tuple[Outcome, str]:
    if _without_ids(old) == _without_ids(new):
        return Outcome.UNTOUCHED, ""
    if same_content(old, new):
        return Outcome.OFFSET, ""
    return Outcome.REFRESHED, _partial(old, new) or "context lines only"


def _without_ids(patch: bytes) -> list[bytes]:
    return [line for line in patch.split(b"\n") if not line.startswith(b"index ")]


def _by_hand(old: bytes, new: bytes) -> str:
    """Return what a resolution made of the changed lines; why is for the user to say."""
    before, after = _changes(old), _changes(new)
    gone, added = (before - after).total(), (after - before).total()
    lines = f"{gone} of {before.total()} changed lines left out, {added} new"
    is_reworded = _head(old) != _head(new)
    told = [lines] if gone or added else []
    return "; ".join([*told, *(["message or author changed"] if is_reworded else [])])


def _head(patch: bytes) -> bytes:
    return patch.partition(b"\ndiff --git ")[0]


def _partial(old: bytes, new: bytes) -> str:
    """Return how much of a patch is left, or "" when it changes the same lines as before."""
    before, after = _changes(old), _changes(new)
    gone, added = (before - after).total(), (after - before).total()
    if not gone and not added:
        return ""
    if not added:
        return f"partly merged upstream: {gone} of {before.total()} changed lines are there already"
    return f"{gone} of {before.total()} changed lines replaced by {added}"


def _changes(patch: bytes) -> Counter[bytes]:
    lines = patch.partition(b"\ndiff --git ")[2].split(b"\n")
    headers = (b"+++ b/", b"--- a/", b"+++ /dev/null", b"--- /dev/null")
    return Counter(
        line for line in lines if line[:1] in {b"+", b"-"} and not line.startswith(headers)
    )
