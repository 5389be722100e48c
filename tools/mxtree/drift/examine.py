# SPDX-License-Identifier: Apache-2.0
"""The drift of one patch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxtree.drift.follow import counted, follow
from mxtree.drift.model import Change, Drift, Event, PatchDrift
from mxtree.drift.places import Place, locate, neighbours, spell
from mxtree.git import git

if TYPE_CHECKING:
    from mxtree.drift.follow import Walk
    from mxtree.drift.roads import Road
    from mxtree.drift.trees import Trees
    from mxtree.engine import Applied


@dataclass(frozen=True)
class Scene:
    """The upstream with its road from ``base`` on, and the patched commits of our own."""

    theirs: Trees
    base: str
    road: Road
    ours: Trees


def examine(scene: Scene, applied: Applied) -> PatchDrift:
    """Return what upstream did to the symbols of a patch.

    A patch without a ``Changes:`` field is judged by the files that it touches.
    """
    patch = applied.patch
    items = patch.changes or _touched(scene.ours, applied.commit)
    symbols = tuple(_item(scene, applied.commit, item) for item in dict.fromkeys(items))
    return PatchDrift(name=patch.name, title=patch.subject, symbols=symbols)


def _touched(ours: Trees, commit: str) -> tuple[str, ...]:
    options = ("-r", "-z", "--root", "--name-only", "--no-renames", "--no-commit-id")
    out = git("diff-tree", *options, commit, cwd=ours.repo)
    return tuple(path.decode("utf-8", "surrogateescape") for path in out.split(b"\0")[:-1])


def _item(scene: Scene, patched: str, item: str) -> Drift:
    place = locate(scene.theirs, scene.base, item)
    if place is not None:
        return _theirs(scene, item, place)
    place = locate(scene.ours, patched, item)
    if place is not None:
        return _ours(scene, patched, item, place)
    note = "neither the base nor the patched tree has it; correct the Changes: field"
    return Drift(name=_text(item), kind="unknown", note=note)


def _theirs(scene: Scene, item: str, place: Place) -> Drift:
    walk = follow(scene.theirs, scene.road, place)
    is_readable = scene.theirs.is_readable(scene.base, place.path)
    is_whole = place.path.endswith(".py") and not is_readable
    notes = ["cannot be parsed: the whole file is compared" if is_whole else "", _note(walk)]
    return Drift(
        name=_text(item),
        kind="symbol" if place.name else "file",
        path=_text(place.path),
        changes=tuple(change for _, change in _staged(scene, place, walk)),
        note="; ".join(filter(None, notes)),
    )


def _ours(scene: Scene, patched: str, item: str, place: Place) -> Drift:
    near = neighbours(scene.ours, patched, scene.theirs, scene.base, place)
    walks = [follow(scene.theirs, scene.road, other) for other in near]
    changes = [
        change
        for other, walk in zip(near, walks, strict=True)
        for change in _staged(scene, other, walk)
    ]
    changes += _collision(scene, place)
    changes.sort(key=lambda pair: scene.road.position(pair[0]))
    return Drift(
        name=_text(item),
        kind="ours",
        path=_text(place.path),
        compared=tuple(_text(spell(other)) for other in near),
        changes=tuple(change for _, change in changes),
        note="; ".join(filter(None, map(_note, walks))),
    )


def _collision(scene: Scene, place: Place) -> list[tuple[str, Change]]:
    """Return when upstream got a definition of its own where a patch adds one."""
    road = scene.road
    for stone in road.stones(road.start, place.path):
        found = scene.theirs.find(stone, *place)
        if found is not None:
            name = spell(place)
            label = road.label(stone)
            return [(stone, Change(at=label, event=Event.COLLIDES, symbol=name, added=len(found)))]
    return []


def _staged(scene: Scene, place: Place, walk: Walk) -> list[tuple[str, Change]]:
    """Return the changes that the base does not have.

    A release branch left the road before the base and took some of the changes on it: up to the
    last stone with the very source of the base, everything is in the base.
    """
    seen = walk.changes
    if scene.road.start != scene.base:
        base = scene.theirs.find(scene.base, *place)
        known = [i for i, (_, _, now) in enumerate(seen) if now == base]
        seen = seen[known[-1] + 1 :] if known else seen
        if seen and seen[0][1].event is Event.RETURNED:
            stone, change, now = seen[0]
            removed, added = counted(base or [], now or [])
            update = {"event": Event.CHANGED, "removed": removed, "added": added}
            seen = [(stone, change.model_copy(update=update), now), *seen[1:]]
    return [(stone, change) for stone, change, _ in seen]


def _note(walk: Walk) -> str:
    return f"cannot be parsed at {', '.join(walk.unreadable)}" if walk.unreadable else ""


def _text(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
