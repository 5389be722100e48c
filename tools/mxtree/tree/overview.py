# SPDX-License-Identifier: Apache-2.0
"""`mxtree status --patches`: every patch with its age, size, upstream status and proof."""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from mxtree.series import load_series
from mxtree.upstreams import load_upstreams

if TYPE_CHECKING:
    from mxtree.project import Project
    from mxtree.series import Patch

_DAY_S = 86400
_CHANGED = re.compile(rb"^(?:\+(?!\+\+ b/)|-(?!-- (?:a/|/dev/null)))", re.MULTILINE)


@dataclass(frozen=True)
class PatchOverview:
    """One patch of a pinned series; ``age_days`` since its author date, None when unreadable."""

    upstream: str
    version: str
    id: str
    title: str
    status: str
    age_days: int | None
    changed_lines: int
    tests: int

    def to_json(self) -> dict[str, object]:
        """Return the fields for ``--json``."""
        return asdict(self)


def overview(project: Project, *, now: float | None = None) -> list[PatchOverview]:
    """Return every patch of the pinned series, the ones that upstream never saw first.

    Within one status the oldest come first: they have waited longest for somebody to send them.
    """
    upstreams, at = load_upstreams(project), time.time() if now is None else now
    found = [
        _one(upstream.name, upstream.default, patch, at)
        for upstream in map(upstreams.get, upstreams.names)
        for patch in load_series(project.series_dir(upstream.name, upstream.default)).patches
    ]
    return sorted(found, key=lambda item: (_rank(item.status), -(item.age_days or 0)))


def _one(upstream: str, version: str, patch: Patch, now: float) -> PatchOverview:
    diff = patch.raw.partition(b"\ndiff --git ")[2]
    return PatchOverview(
        upstream=upstream,
        version=version,
        id=patch.id,
        title=patch.subject,
        status=patch.fields.get("Upstream-Status", "unknown"),
        age_days=_age(patch, now),
        changed_lines=len(_CHANGED.findall(diff)),
        tests=len(patch.proven_by),
    )


def _age(patch: Patch, now: float) -> int | None:
    if patch.mail is None:
        return None
    seconds = int(patch.mail.author.rsplit(b" ", 2)[1])
    return max(int((now - seconds) // _DAY_S), 0)


def _rank(status: str) -> int:
    order = ("Pending", "Submitted", "Backport", "Inappropriate")
    word = status.partition(" ")[0]
    return order.index(word) if word in order else len(order)


def lines(patches: list[PatchOverview]) -> list[str]:
    """Return the overview as aligned text, one patch a line, and the totals."""
    rows = [
        (
            f"{item.upstream} {item.version}",
            item.id,
            f"{item.age_days} d" if item.age_days is not None else "?",
            f"{item.changed_lines} lines",
            f"{item.tests} tests",
            item.title,
            item.status,
        )
        for item in patches
    ]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(7)]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    total = sum(item.changed_lines for item in patches)
    return [*text, f"{len(patches)} patches, {total} changed lines"]
