# SPDX-License-Identifier: Apache-2.0
"""Compare runs: the first is the baseline, its repetitions the envelope, the rest is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .alignment import Aligned, Equality, align, equality
from .envelope import is_repetition, recipe_difference
from .run_files import RunFiles, read_run
from .verdict import Judgement, judge

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

KINDS = ("validation", "training")
SAME, DIVERGED, NOT_JUDGED = 0, 1, 4


@dataclass(frozen=True)
class Compared:
    """One run against the baseline."""

    run: RunFiles
    differences: dict[str, tuple[Any, Any]]
    judgements: tuple[Judgement, ...]
    equality: dict[str, Equality]
    """By kind of loss."""
    covered: float
    """Share of the baseline's samples that this run has trained, up to 1."""

    @property
    def is_identical(self) -> bool:
        """Whether both runs have the same losses, all equal bit for bit."""
        found = self.equality.values()
        differ = any(e.differs_at is not None or e.unmatched for e in found)
        return not differ and any(e.equal for e in found)


@dataclass(frozen=True)
class Comparison:
    """Baselines (the first run, then its repetitions) and what is compared with them."""

    baselines: tuple[RunFiles, ...]
    others: tuple[Compared, ...]
    aligned: dict[str, Aligned]
    """By kind of loss; the runs in order: baselines, then others."""
    assert_equal: bool = False
    partial: bool = False
    """Judge runs that cover only a part of the baseline by that part."""

    @property
    def short(self) -> dict[str, float]:
        """Share of the baseline's samples by the name of each run that does not cover them all."""
        first, *rest = self.runs
        shares = ((run.name, _coverage(first, run)) for run in rest)
        return {name: share for name, share in shares if share < 1}

    @property
    def runs(self) -> tuple[RunFiles, ...]:
        """All runs, in the order of ``aligned``."""
        return (*self.baselines, *(other.run for other in self.others))

    @property
    def exit_code(self) -> int:
        """0 all as the baseline, 1 one diverged, 4 one could not be judged, or not to the end."""
        if self.assert_equal and not all(other.is_identical for other in self.others):
            return DIVERGED
        judged = [other.judgements for other in self.others]
        if any(j.outcome == "diverged" for found in judged for j in found):
            return DIVERGED
        return SAME if all(judged) and (self.partial or not self.short) else NOT_JUDGED


def compare(
    paths: Sequence[Path],
    *,
    envelope: Sequence[Path] = (),
    tolerance: float | None = None,
    assert_equal: bool = False,
    partial: bool = False,
    window: int | None = None,
) -> Comparison:
    """Compare run directories with the first of them. Raises ReportError when one is none.

    Repetitions of the first run (same recipe and tree, another seed at most) among ``paths``, and
    all runs of ``envelope``, make the A/A envelope; when nothing else is left they are judged.
    """
    first, *rest = map(read_run, paths)
    given = tuple(map(read_run, envelope))
    repeated = tuple(run for run in rest if is_repetition(first, run))
    others = tuple(run for run in rest if run not in repeated)
    if not others:
        others, repeated = tuple(rest), ()
    baselines = (first, *repeated, *given)
    runs = (*baselines, *others)
    aligned = {kind: found for kind in KINDS if (found := align(runs, kind, window=window))}
    count = len(baselines)
    compared = tuple(
        _compared(first, run, _judgements(aligned, count, count + number, tolerance))
        for number, run in enumerate(others)
    )
    return Comparison(baselines, compared, aligned, assert_equal, partial)


def _judgements(
    aligned: dict[str, Aligned], baselines: int, other: int, tolerance: float | None
) -> tuple[Judgement, ...]:
    return tuple(
        judge(found, range(baselines), other, tolerance=tolerance) for found in aligned.values()
    )


def _compared(first: RunFiles, run: RunFiles, judgements: tuple[Judgement, ...]) -> Compared:
    equal = {kind: equality(first, run, kind) for kind in KINDS}
    return Compared(run, recipe_difference(first, run), judgements, equal, _coverage(first, run))


def _coverage(first: RunFiles, run: RunFiles) -> float:
    ends = [
        max((float(event.get("samples") or 0) for event in found.events("train")), default=0.0)
        for found in (first, run)
    ]
    return min(1.0, ends[1] / ends[0]) if ends[0] else 0.0
