# SPDX-License-Identifier: Apache-2.0
"""What `mxtree drift` finds out, as it is printed and as JSON."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, computed_field


class Event(StrEnum):
    """What a release (or commit) did to a symbol."""

    CHANGED = "changed"
    #: It is somewhere else now, changed or not.
    MOVED = "moved"
    VANISHED = "vanished"
    #: It was gone and is there again.
    RETURNED = "returned"
    #: Upstream now has its own symbol of the name that the patch adds.
    COLLIDES = "collides"


class Risk(IntEnum):
    """How much a patch is likely to hurt at the next rebase."""

    NONE = 0
    #: Only the neighbourhood of something new changed, or nobody can tell.
    LOW = 1
    CHANGED = 2
    #: Gone, somewhere else, or taken.
    HIGH = 3


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Change(_Model):
    """One event at one release or commit; the lines are those of the symbol, as in a diff.

    ``symbol`` is what changed: the symbol itself, or a neighbour of a new one. ``to`` is where it
    moved.
    """

    at: str
    event: Event
    symbol: str
    added: int = 0
    removed: int = 0
    to: str = ""


class Drift(_Model):
    """One item of a patch's ``Changes:`` field, or a path that the patch touches.

    ``kind`` is "symbol" or "file" for what the base has, "ours" for what the patch adds (then
    ``compared`` names the neighbours that were looked at), "unknown" for what neither has.
    """

    name: str
    kind: Literal["symbol", "file", "ours", "unknown"]
    path: str = ""
    compared: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    note: str = ""

    @property
    def risk(self) -> Risk:
        events = {change.event for change in self.changes}
        if self.kind == "ours":
            collides = Event.COLLIDES in events
            return Risk.HIGH if collides else Risk.LOW if events else Risk.NONE
        if events & {Event.MOVED, Event.VANISHED}:
            return Risk.HIGH
        if events:
            return Risk.CHANGED
        return Risk.LOW if self.kind == "unknown" else Risk.NONE

    @property
    def lines(self) -> int:
        """Lines added and removed, all events together."""
        return sum(change.added + change.removed for change in self.changes)


class PatchDrift(_Model):
    """One patch with its symbols."""

    name: str
    title: str
    symbols: tuple[Drift, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def risk(self) -> Literal["none", "low", "changed", "high"]:
        """The highest risk of its symbols."""
        worst = max((symbol.risk for symbol in self.symbols), default=Risk.NONE)
        return _NAMES[worst]

    @property
    def weight(self) -> tuple[Risk, int]:
        """What the summary sorts by: the risk, then the changed lines at that risk."""
        worst = max((symbol.risk for symbol in self.symbols), default=Risk.NONE)
        return worst, sum(symbol.lines for symbol in self.symbols if symbol.risk == worst)


_NAMES: dict[Risk, Literal["none", "low", "changed", "high"]] = {
    Risk.NONE: "none",
    Risk.LOW: "low",
    Risk.CHANGED: "changed",
    Risk.HIGH: "high",
}


class SeriesDrift(_Model):
    """The drift of one upstream's pinned series; ``over`` are the releases or the range looked at.

    ``problem`` says why there is nothing to tell.
    """

    upstream: str
    base: str
    over: tuple[str, ...] = ()
    patches: tuple[PatchDrift, ...] = ()
    problem: str = ""

    def by_risk(self) -> list[PatchDrift]:
        """Return the patches with the most dangerous first, else in series order."""
        return sorted(self.patches, key=lambda patch: patch.weight, reverse=True)
