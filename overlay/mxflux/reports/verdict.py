# SPDX-License-Identifier: Apache-2.0
"""Does a run train as its baseline does? Within the A/A envelope, or within a tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .envelope import centre, half_width
from .tolerance import CRITERION, default_limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .alignment import Aligned

Outcome = Literal["same", "diverged", "not judged"]
#: A difference has to last for this share of the points (and at least three) to count.
_LASTING = 0.02


@dataclass(frozen=True)
class Judgement:
    """How one run compares with the baseline, on one kind of loss."""

    kind: str
    criterion: str
    outcome: Outcome
    points: int
    outside: int
    """Points beyond the limit."""
    diverged_at: float | None
    """Samples from which on it stays beyond the limit long enough to count."""
    worst: float
    """Greatest |difference|."""
    worst_at: float
    final: float
    """Difference at the last common point."""
    baseline: float
    """Baseline's loss there."""
    limits: tuple[float, ...]
    differences: tuple[float, ...]


def judge(
    aligned: Aligned, baselines: Sequence[int], other: int, *, tolerance: float | None
) -> Judgement:
    """Compare run ``other`` with the mean of ``baselines``, indices of ``aligned.losses``.

    The limit at a point is the A/A envelope when there are several baselines and no tolerance is
    given, else tolerance x |baseline|, and without either the default of `tolerance`. A value that
    is not finite is beyond every limit.
    """
    rows = [aligned.losses[index] for index in baselines]
    middle = centre(rows)
    if len(rows) > 1 and tolerance is None:
        limits, criterion = half_width(rows), f"A/A envelope of {len(rows)} runs"
    elif tolerance is None:
        limits, criterion = default_limits(aligned.x, middle), CRITERION
    else:
        limits = [tolerance * abs(value) for value in middle]
        criterion = f"{tolerance:.3%} of the baseline"
    differences = [value - base for value, base in zip(aligned.losses[other], middle, strict=True)]
    outside = [not abs(d) <= limit for d, limit in zip(differences, limits, strict=True)]
    start = _lasting(outside)
    worst = max(range(len(differences)), key=lambda i: _size(differences[i]))
    return Judgement(
        aligned.kind, criterion, "same" if start is None else "diverged", len(outside),
        sum(outside), None if start is None else aligned.x[start], _size(differences[worst]),
        aligned.x[worst], differences[-1], middle[-1], tuple(limits), tuple(differences),
    )  # fmt: skip


def _lasting(outside: Sequence[bool]) -> int | None:
    """First index of a run of points beyond the limit that is long enough, or reaches the end."""
    needed = max(3, math.ceil(_LASTING * len(outside)))
    length = 0
    for index, beyond in enumerate([*outside, False]):
        if beyond:
            length += 1
            continue
        # At the end a shorter run counts: nothing shows that it comes back.
        if length >= needed or (length and index == len(outside)):
            return index - length
        length = 0
    return None


def _size(difference: float) -> float:
    return abs(difference) if math.isfinite(difference) else math.inf
