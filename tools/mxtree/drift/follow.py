# SPDX-License-Identifier: Apache-2.0
"""Follow one definition along releases or commits."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from mxtree.drift.definitions import dedented
from mxtree.drift.model import Change, Event
from mxtree.drift.moves import moved
from mxtree.drift.places import spell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxtree.drift.places import Place
    from mxtree.drift.roads import Road
    from mxtree.drift.trees import Trees

Lines = list[str] | None


@dataclass
class Walk:
    """What was seen: (stone, change, source lines after it), and where nothing could be seen."""

    changes: list[tuple[str, Change, Lines]] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def follow(trees: Trees, road: Road, place: Place) -> Walk:
    """Return what the stones of a road did to a definition, oldest first.

    ``place`` is where it is at the start. After a move it is followed at its new place; when it
    is gone, the old place is watched on.
    """
    walk = Walk()
    lines = trees.find(road.start, *place)
    waiting = list(road.stones(road.start, place.path))
    while waiting:
        stone = waiting.pop(0)
        if place.name and not trees.is_readable(stone, place.path):
            walk.unreadable.append(road.label(stone))
            continue
        now = trees.find(stone, *place)
        target = None
        if lines is not None and now is None:
            target = moved(trees, road.before(stone), stone, place)
        if target is not None:
            now = trees.find(stone, *target) or []
            change = _moved(road.label(stone), place, target, lines or [], now)
            walk.changes.append((stone, change, now))
            place, waiting = target, list(road.stones(stone, target.path))
        elif now != lines:
            walk.changes.append((stone, _changed(road.label(stone), place, lines, now), now))
        lines = now
    return walk


def _moved(at: str, old: Place, new: Place, before: list[str], now: list[str]) -> Change:
    removed, added = counted(dedented(before), dedented(now))
    place = spell(old)
    return Change(
        at=at, event=Event.MOVED, symbol=place, added=added, removed=removed, to=spell(new)
    )


def _changed(at: str, place: Place, lines: Lines, now: Lines) -> Change:
    event = Event.CHANGED
    if lines is None or now is None:
        event = Event.RETURNED if lines is None else Event.VANISHED
    removed, added = counted(lines or [], now or [])
    return Change(at=at, event=event, symbol=spell(place), added=added, removed=removed)


def counted(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return how many lines a diff removes and adds."""
    start = 0
    shorter = min(len(old), len(new))
    while start < shorter and old[start] == new[start]:
        start += 1
    end = 0
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    one, other = old[start : len(old) - end], new[start : len(new) - end]
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    same = sum(block.size for block in blocks)
    return len(one) - same, len(other) - same
