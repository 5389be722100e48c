# SPDX-License-Identifier: Apache-2.0
"""The curves of a comparison as SVG and PNG files, for slides and papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from .comparison import Comparison

_DPI = 150


def write_plots(comparison: Comparison, svg: Path, png: Path) -> None:
    """Loss of every kind above, difference from the baseline with its limit below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    kinds = list(comparison.aligned)
    figure = Figure(figsize=(6.4 * max(1, len(kinds)), 6.4), layout="constrained")
    for column, kind in enumerate(kinds):
        above = figure.add_subplot(2, len(kinds), column + 1)
        below = figure.add_subplot(2, len(kinds), len(kinds) + column + 1, sharex=above)
        _draw(comparison, kind, above, below)
    svg.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasSVG(figure)
    figure.savefig(svg, metadata={"Date": None})
    FigureCanvasAgg(figure)
    figure.savefig(png, dpi=_DPI)


def _draw(comparison: Comparison, kind: str, above: Any, below: Any) -> None:
    aligned = comparison.aligned[kind]
    count = len(comparison.baselines)
    for index, run in enumerate(comparison.runs):
        colour = "0.75" if 0 < index < count else f"C{max(0, index - count + 1)}"
        above.plot(aligned.x, aligned.losses[index], label=run.name, color=colour, linewidth=1.2)
    for number, other in enumerate(comparison.others, start=1):
        for judgement in (j for j in other.judgements if j.kind == kind):
            below.plot(aligned.x, judgement.differences, color=f"C{number}", linewidth=1.2)
            if number == 1:
                low = [-limit for limit in judgement.limits]
                below.fill_between(aligned.x, low, judgement.limits, color="C0", alpha=0.12)
            if judgement.diverged_at is not None:
                below.axvline(judgement.diverged_at, color=f"C{number}", linestyle="--")
    above.set_ylabel(f"{kind} loss")
    above.legend(fontsize="small")
    below.set_ylabel("difference from the baseline")
    below.set_xlabel("samples")
    for axes in (above, below):
        axes.grid(visible=True, alpha=0.3)
