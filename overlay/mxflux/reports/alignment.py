# SPDX-License-Identifier: Apache-2.0
"""Put the losses of runs on common sample counts: by samples seen, never by step number."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .curves import Curve, curve, default_window, smoothed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .run_files import RunFiles

#: Event of metrics.jsonl that has each kind of loss.
EVENTS = {"validation": "evaluation", "training": "train"}
#: Fewer common sample counts than this say nothing.
FEWEST = 2


@dataclass(frozen=True)
class Aligned:
    """Losses of several runs at the same sample counts."""

    kind: str
    """"validation" or "training"."""
    x: tuple[float, ...]
    losses: tuple[tuple[float, ...], ...]
    """One tuple a run."""
    is_interpolated: bool = False
    window: int = 1
    """Training losses that one value is the mean of."""

    def curve(self, index: int) -> Curve:
        """The losses of one run."""
        return Curve(self.x, self.losses[index])


def align(runs: Sequence[RunFiles], kind: str, *, window: int | None = None) -> Aligned | None:
    """Losses of ``kind`` at the sample counts that all runs have; None with fewer than two.

    Where runs share none (other batch sizes), each is interpolated at the first run's counts in
    the range that all cover; training losses are smoothed before.
    """
    curves = [curve(run.events(EVENTS[kind]), "loss") for run in runs]
    if not all(curves):
        return None
    width = 1
    if kind == "training":
        width = window or default_window(min(len(c.x) for c in curves))
        curves = [smoothed(c, width) for c in curves]
    common = sorted(set(curves[0].x).intersection(*(c.x for c in curves[1:])))
    if len(common) >= FEWEST:
        points = [c.points for c in curves]
        losses = tuple(tuple(p[x] for x in common) for p in points)
        return Aligned(kind, tuple(common), losses, window=width)
    low, high = max(c.x[0] for c in curves), min(c.x[-1] for c in curves)
    grid = tuple(x for x in curves[0].x if low <= x <= high)
    if len(grid) < FEWEST:
        return None
    losses = tuple(tuple(interpolate(c, x) for x in grid) for c in curves)
    return Aligned(kind, grid, losses, is_interpolated=True, window=width)


def interpolate(given: Curve, x: float) -> float:
    """Value at ``x`` on the straight line between its neighbours; ``x`` lies in the range."""
    right = bisect_left(given.x, x)
    if given.x[right] == x:
        return given.y[right]
    share = (x - given.x[right - 1]) / (given.x[right] - given.x[right - 1])
    return given.y[right - 1] + share * (given.y[right] - given.y[right - 1])


@dataclass(frozen=True)
class Equality:
    """How long two runs' losses are the same numbers, bit for bit."""

    equal: int
    """Losses from the start that are."""
    differs_at: float | None
    """Samples at the first one that is not; None when there is none."""
    unmatched: int
    """Losses at sample counts that only one of the runs has."""


def equality(first: RunFiles, other: RunFiles, kind: str) -> Equality:
    """Compare losses of ``kind`` at common sample counts, up to the first difference."""
    event = EVENTS[kind]
    one, two = (curve(run.events(event), "loss").points for run in (first, other))
    unmatched = len(one.keys() ^ two.keys())
    equal = 0
    for x in sorted(one.keys() & two.keys()):
        if one[x].hex() != two[x].hex():
            return Equality(equal, x, unmatched)
        equal += 1
    return Equality(equal, None, unmatched)
