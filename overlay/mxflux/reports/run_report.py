# SPDX-License-Identifier: Apache-2.0
"""The report of one run, as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .page import Page
from .run_curves import curves_section, evaluation_section, mlperf_section, throughput_section
from .run_files import FILES, RunFiles, read_run
from .run_sections import (
    attempts_section,
    effective_section,
    fusions_section,
    identity_section,
    precision_section,
    recipe_section,
)

if TYPE_CHECKING:
    from pathlib import Path

    from .page import Section, Tone

_TONES: dict[str, Tone] = {"finished": "good", "stopped": "warn", "running": "warn"}


def run_page(path: Path) -> Page:
    """Page of a run directory. Raises ReportError when it is none."""
    run = read_run(path)
    status = str(run.record.get("status") or "unknown: run.json does not say")
    candidates = (
        identity_section(run),
        curves_section(run),
        throughput_section(run),
        evaluation_section(run),
        mlperf_section(run),
        precision_section(run),
        fusions_section(run),
        effective_section(run),
        attempts_section(run),
        recipe_section(run),
    )
    sections = tuple(section for section in candidates if section is not None)
    wrong = tuple(section.title.lower() for section in sections if _is_wrong(section))
    tone = "bad" if wrong else _TONES.get(status, "bad")
    return Page(f"Run {run.name}", _state(run, status, wrong), tone, sections)


def _is_wrong(section: Section) -> bool:
    """Whether a table says that something is not as it was asked for."""
    if section.title == "Attempts and checkpoints":
        return False  # an attempt that failed is what a restart is for; the status tells the end
    return any(cell.tone == "bad" for table in section.tables for row in table.rows for cell in row)


def _state(run: RunFiles, status: str, wrong: tuple[str, ...]) -> str:
    attempts = run.record.get("attempts") or [{}]
    reason = attempts[-1].get("reason")
    steps = [event.get("step") for event in run.events("train")]
    parts = [status if not reason else f"{status} ({reason})"]
    if steps:
        total = (run.recipe.get("schedule") or {}).get("train_iters")
        parts.append(f"step {steps[-1]}" + (f" of {total}" if total else ""))
    if wrong:
        parts.append(f"not as asked: {', '.join(wrong)}")
    gone = [name for name in FILES if name in run.missing or name in run.damaged]
    if gone:
        parts.append(f"not recorded: {', '.join(gone)}")
    return "; ".join(parts)
