# SPDX-License-Identifier: Apache-2.0
"""A comparison as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .comparison import DIVERGED, SAME, Compared, Comparison
from .curves import Curve
from .identity import chain
from .page import Cell, Page, Section, Table, code, row, text_of
from .run_sections import plain
from .svg import Band, Line, chart

if TYPE_CHECKING:
    from .alignment import Aligned
    from .page import Tone
    from .verdict import Judgement

_STYLES = 6


def compare_page(comparison: Comparison) -> Page:
    """Page of a comparison: verdict, curves, differences, evaluations, recipes, identities."""
    state, tone = state_of(comparison)
    names = [run.name for run in comparison.runs]
    sections = (
        _verdicts(comparison),
        *(_curves(comparison, kind) for kind in comparison.aligned),
        _evaluations(comparison),
        _recipes(comparison),
        _identities(comparison),
    )
    title = f"{names[0]} against {', '.join(o.run.name for o in comparison.others)}"
    return Page(title, state, tone, tuple(filter(None, sections)))


def state_of(comparison: Comparison) -> tuple[str, Tone]:
    """The verdict in a line, and its tone."""
    if comparison.exit_code == SAME and comparison.assert_equal:
        return "equal bit for bit", "good"
    if comparison.exit_code == SAME:
        same = f"the same within {_criteria(comparison)}"
        return (
            (f"{same}, but {_coverage(comparison)}", "warn") if comparison.short else (same, "good")
        )
    if comparison.exit_code != DIVERGED and all(o.judgements for o in comparison.others):
        hint = "--partial judges what they have in common"
        return f"not judged: {_coverage(comparison)}; {hint}", "warn"
    if comparison.exit_code != DIVERGED:
        return "not judged: the runs have fewer than two losses at common sample counts", "warn"
    parts = [text for other in comparison.others if (text := _divergence(other))]
    if not parts:
        parts = [f"{o.run.name} is not equal bit for bit" for o in comparison.others
                 if not o.is_identical]  # fmt: skip
    return "; ".join(parts), "bad"


def _coverage(comparison: Comparison) -> str:
    return ", ".join(
        f"{name} covers {share:.1%} of the baseline's samples"
        for name, share in comparison.short.items()
    )


def _criteria(comparison: Comparison) -> str:
    found = [j.criterion for other in comparison.others for j in other.judgements]
    return " and ".join(dict.fromkeys(found))


def _divergence(other: Compared) -> str:
    found = [j for j in other.judgements if j.diverged_at is not None]
    return "; ".join(
        f"{other.run.name} diverges in {j.kind} loss at {_samples(j.diverged_at)} samples "
        f"({j.criterion})"
        for j in found
    )


def _verdicts(comparison: Comparison) -> Section:
    head = ("run", "loss", "verdict", "criterion", "points", "beyond", "first divergence",
            "greatest difference", "at", "final difference", "final, relative")  # fmt: skip
    rows = tuple(
        _judgement_row(other, judgement)
        for other in comparison.others
        for judgement in other.judgements
    )
    text = [line for other in comparison.others for line in _equality(other)]
    text += [_coverage(comparison)] if comparison.short else []
    tables = (Table(head, rows),) if rows else ()
    return Section("Verdict", tuple(text), tables)


def _judgement_row(other: Compared, j: Judgement) -> tuple[Cell, ...]:
    tone: Tone = "good" if j.outcome == "same" else "bad"
    relative = j.final / abs(j.baseline) if j.baseline else None
    return row(
        other.run.name, j.kind, Cell(j.outcome, tone), j.criterion, j.points, j.outside,
        _samples(j.diverged_at), j.worst, _samples(j.worst_at), j.final,
        None if relative is None else f"{relative:+.3%}",
    )  # fmt: skip


def _equality(other: Compared) -> list[str]:
    lines = []
    for kind, found in other.equality.items():
        if found.differs_at is not None:
            how = (
                f"{found.equal} losses equal bit for bit, first different at "
                f"{_samples(found.differs_at)} samples"
            )
        elif found.equal:
            how = f"all {found.equal} common losses equal bit for bit"
        elif found.unmatched:
            how = "no loss at a common sample count"
        else:
            continue
        lines.append(f"{other.run.name}, {kind}: {how}")
    return lines


def _curves(comparison: Comparison, kind: str) -> Section:
    aligned = comparison.aligned[kind]
    count = len(comparison.baselines)
    dotted = "dots " if kind == "validation" and len(aligned.x) < 60 else ""
    lines = [
        Line(run.name, aligned.curve(index), dotted + _style(index, count))
        for index, run in enumerate(comparison.runs)
    ]
    text = [f"{len(aligned.x)} common sample counts"]
    if aligned.window > 1:
        text.append(f"each value is the mean of the last {aligned.window} logged losses")
    if aligned.is_interpolated:
        text.append("no common sample counts: interpolated at those of the baseline")
    return Section(
        f"{kind.capitalize()} loss",
        ("; ".join(text),),
        charts=(chart(f"{kind} loss", lines), _difference_chart(comparison, aligned)),
    )


def _difference_chart(comparison: Comparison, aligned: Aligned) -> str:
    kind, lines, bands, mark = aligned.kind, [], [], None
    for number, other in enumerate(comparison.others):
        for j in other.judgements:
            if j.kind != kind:
                continue
            style = _style(len(comparison.baselines) + number, len(comparison.baselines))
            lines.append(Line(other.run.name, Curve(aligned.x, j.differences), style))
            low = Curve(aligned.x, tuple(-limit for limit in j.limits))
            bands = [Band(j.criterion, low, Curve(aligned.x, j.limits))]
            mark = mark if mark is not None else j.diverged_at
    several = len(comparison.baselines) > 1
    what = "the mean of the baselines" if several else comparison.baselines[0].name
    return chart(f"difference from {what}", lines, bands=bands, mark=mark)


def _style(index: int, baselines: int) -> str:
    """The first run in the first colour, its repetitions faint, the others in the next colours."""
    if index == 0:
        return "s0"
    return "faint" if index < baselines else f"s{1 + (index - baselines) % (_STYLES - 1)}"


def _evaluations(comparison: Comparison) -> Section | None:
    aligned = comparison.aligned.get("validation")
    if aligned is None:
        return None
    names = [run.name for run in comparison.runs]
    first, others = names[0], comparison.others
    head = ("samples", *names, *(f"{o.run.name} - {first}" for o in others))
    start = len(comparison.baselines)
    rows = tuple(
        row(
            f"{x:,.0f}",
            *(f"{losses[i]:.6f}" for losses in aligned.losses),
            *(f"{aligned.losses[start + n][i] - aligned.losses[0][i]:+.6f}"
              for n in range(len(others))),
        )
        for i, x in enumerate(aligned.x)
    )  # fmt: skip
    return Section("Evaluations", tables=(Table(head, rows, "", folded=False),))


def _recipes(comparison: Comparison) -> Section:
    tables = []
    for other in comparison.others:
        rows = tuple(
            row(code(key), plain(one), plain(two)) for key, (one, two) in other.differences.items()
        )
        if rows:
            tables.append(Table(("key", comparison.baselines[0].name, other.run.name), rows))
    text = () if tables else ("no key differs",)
    return Section("What was asked differently", text, tuple(tables))


def _identities(comparison: Comparison) -> Section:
    rows = []
    for run in comparison.runs:
        links = {link.name: link.digest for link in chain(run)}
        digests = (code((links[n] or "")[:16]) for n in ("tree", "overlay", "recipe", "run"))
        role = "baseline" if run in comparison.baselines else "compared"
        seed = (run.recipe.get("schedule") or {}).get("seed")
        rows.append(row(run.name, role, *digests, text_of(seed), str(run.record.get("status"))))
    head = ("run", "", "tree", "overlay", "recipe", "machine", "seed", "status")
    return Section("Identity", tables=(Table(head, tuple(rows)),))


def _samples(value: float | None) -> str:
    return "\u2014" if value is None else f"{value:,.0f}"
