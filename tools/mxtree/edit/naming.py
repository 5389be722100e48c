# SPDX-License-Identifier: Apache-2.0
"""File names of patches: a stable number and a slug that outlive amend, reword and reorder."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mxtree.errors import ExitCode, FatalError
from mxtree.series.listing import PATCH_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_SLUG_LENGTH = 52
_LAST_ID = 9999


def names_in_all_versions(series_dir: Path) -> list[str]:
    """Return the names of the patches beside ``series_dir``: of every version of its upstream."""
    return sorted(
        {
            path.name
            for path in series_dir.parent.glob("*/*.patch")
            if PATCH_NAME.fullmatch(path.name)
        }
    )


def slug(subject: str) -> str:
    """Return the words of a subject as they stand in a file name: ASCII, dashes, no dots."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", subject).strip("-")
    return words[:_SLUG_LENGTH].rstrip("-") or "patch"


def next_id(taken: Iterable[str]) -> str:
    """Return the first number above all of ``taken`` (patch file names).

    A number is never used twice, so that a name in an old report means one patch for ever. Raises
    `FatalError` when 9999 is taken.
    """
    highest = max((int(name[:4]) for name in taken), default=0)
    if highest >= _LAST_ID:
        raise FatalError(
            "no patch number above 9999 is left",
            hint="renumber the series by hand, in a commit of its own",
            code=ExitCode.CHECK_FAILED,
        )
    return f"{highest + 1:04}"


def assign_names(
    recorded: Sequence[Sequence[str]],
    subjects: Sequence[str],
    known: Sequence[str],
    elsewhere: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return a file name for each commit, in order.

    ``recorded`` are the names that the notes give for each commit, ``subjects`` their subjects,
    ``known`` the names in the series now, and ``elsewhere`` those in the series of other versions:
    a number means the same patch in all of them. A recorded name wins (the first one nobody took);
    a commit without a note, as `git cherry-pick` makes them, gets back the name with its slug;
    others get a new number.
    """
    names: list[str | None] = [None] * len(subjects)
    free = set(known)
    for index, candidates in enumerate(recorded):
        names[index] = next((name for name in candidates if name not in names), None)
        free.discard(names[index] or "")
    for index, subject in enumerate(subjects):
        if names[index] is None:
            twins = sorted(name for name in free if _slug_of(name) == slug(subject).casefold())
            names[index] = twins[0] if twins else None
            free.discard(names[index] or "")
    for index, subject in enumerate(subjects):
        if names[index] is None:
            taken = [*known, *elsewhere, *(name for name in names if name)]
            names[index] = f"{next_id(taken)}-{slug(subject)}.patch"
    return tuple(name for name in names if name)


def _slug_of(name: str) -> str:
    return name[5:].removesuffix(".patch").casefold()
