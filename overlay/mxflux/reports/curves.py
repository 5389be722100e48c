# SPDX-License-Identifier: Apache-2.0
"""Curves of a run: one value a sample count; of a step that was repeated, the last attempt's."""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class Curve:
    """Values over samples (or steps, where samples were not recorded), ascending."""

    x: tuple[float, ...]
    y: tuple[float, ...]

    def __bool__(self) -> bool:
        return bool(self.x)

    @property
    def points(self) -> dict[float, float]:
        """Value at each position."""
        return dict(zip(self.x, self.y, strict=True))


def curve(events: Iterable[dict[str, Any]], key: str) -> Curve:
    """Values of ``key`` by samples; a step that was repeated after a resume counts as it ended."""
    points: dict[float, float] = {}
    for event in events:
        value, position = event.get(key), event.get("samples", event.get("step"))
        if isinstance(value, int | float) and isinstance(position, int | float):
            points[float(position)] = float(value)
    ordered = sorted(points.items())
    return Curve(tuple(x for x, _ in ordered), tuple(y for _, y in ordered))


def smoothed(given: Curve, window: int) -> Curve:
    """Mean over the last ``window`` values (over fewer at the start)."""
    last: deque[float] = deque(maxlen=max(1, window))
    means = []
    for value in given.y:
        last.append(value)
        means.append(math.fsum(last) / len(last))
    return Curve(given.x, tuple(means))


def default_window(count: int) -> int:
    """How many training losses a smoothed one is the mean of: 5 % of them, at most 100."""
    return max(1, min(100, count // 20))


def thinned(given: Curve, limit: int = 600) -> Curve:
    """At most about ``limit`` points that keep every extreme: least and greatest of each bucket."""
    count = len(given.x)
    if count <= limit:
        return given
    size = math.ceil(2 * count / limit)
    kept: list[int] = []
    for start in range(0, count, size):
        bucket = range(start, min(start + size, count))
        finite = [i for i in bucket if math.isfinite(given.y[i])]
        broken = [i for i in bucket if not math.isfinite(given.y[i])]
        ends = [min(finite, key=given.y.__getitem__), max(finite, key=given.y.__getitem__)]
        kept += sorted({*(ends if finite else ()), *broken[:1]})
    return Curve(tuple(given.x[i] for i in kept), tuple(given.y[i] for i in kept))


@dataclass(frozen=True)
class Spread:
    """Quantiles of a measurement."""

    count: int
    median: float
    low: float
    """5th percentile."""
    high: float
    """95th percentile."""


def spread(values: Sequence[float]) -> Spread | None:
    """Median and 90 % range of finite values; None of none."""
    finite = sorted(value for value in values if math.isfinite(value))
    if not finite:
        return None
    at = len(finite) - 1
    return Spread(
        len(finite), statistics.median(finite), finite[round(0.05 * at)], finite[round(0.95 * at)]
    )
