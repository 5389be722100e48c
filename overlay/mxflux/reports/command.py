# SPDX-License-Identifier: Apache-2.0
"""What `mxtree report run` and `mxtree report compare` do, without their command line."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .compare_report import compare_page, state_of
from .comparison import Comparison, compare
from .errors import ReportError
from .render import to_html, to_markdown, write
from .run_report import run_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .page import Page

HTML = {".html", ".htm"}
MARKDOWN = {".md", ".markdown"}


def report_run(run: Path, output: Path | None = None) -> tuple[str, list[Path]]:
    """Write the report of a run; returns its one-line state and the files.

    RUN/report.html and RUN/report.md, or ``output``: FILE.html with FILE.md beside it, or FILE.md
    alone. Raises ReportError when ``run`` is no run directory or ``output`` has another suffix.
    """
    page = run_page(run)
    return page.state, _write(page, output or run / "report.html")


def report_compare(
    runs: Sequence[Path],
    output: Path | None = None,
    *,
    envelope: Sequence[Path] = (),
    tolerance: float | None = None,
    assert_equal: bool = False,
    partial: bool = False,
) -> tuple[Comparison, list[Path]]:
    """Compare runs; with ``output`` write FILE.html, .md, .json, .svg and .png.

    Raises ReportError when a run is no run directory or there are fewer than two.
    """
    if len(runs) < 2:
        raise ReportError("compare needs two runs at least: a baseline and another")
    if tolerance is not None and not tolerance >= 0:
        raise ReportError(f"--tolerance {tolerance} must not be negative")
    comparison = compare(
        runs, envelope=envelope, tolerance=tolerance, assert_equal=assert_equal, partial=partial
    )
    if output is None:
        return comparison, []
    written = _write(compare_page(comparison), output)
    if output.suffix.lower() in HTML:
        result = output.with_suffix(".json")
        write(result, json.dumps(to_json(comparison), indent=2) + "\n")
        written.append(result)
        if comparison.aligned:
            from .plots import write_plots

            plots = [output.with_suffix(".svg"), output.with_suffix(".png")]
            write_plots(comparison, *plots)
            written += plots
    return comparison, written


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Verdicts and numbers of a comparison."""
    return {
        "verdict": state_of(comparison)[0],
        "exit_code": comparison.exit_code,
        "baselines": [run.name for run in comparison.baselines],
        "runs": [
            {
                "name": other.run.name,
                "equality": {kind: asdict(found) for kind, found in other.equality.items()},
                "covered": other.covered,
                "judgements": [
                    {
                        "loss": j.kind, "outcome": j.outcome, "criterion": j.criterion,
                        "points": j.points, "beyond": j.outside,
                        "diverged_at_samples": j.diverged_at, "greatest_difference": j.worst,
                        "greatest_at_samples": j.worst_at, "final_difference": j.final,
                        "final_baseline": j.baseline,
                    }
                    for j in other.judgements
                ],
            }
            for other in comparison.others
        ],
    }  # fmt: skip


def _write(page: Page, output: Path) -> list[Path]:
    suffix = output.suffix.lower()
    if suffix not in HTML | MARKDOWN:
        raise ReportError(f"{output.name}: a report is written to FILE.html or FILE.md")
    if output.is_dir():
        raise ReportError(f"{output} is a folder: name a file in it")
    written = []
    if suffix in HTML:
        write(output, to_html(page))
        written.append(output)
        output = output.with_suffix(".md")
    write(output, to_markdown(page))
    return [*written, output]
