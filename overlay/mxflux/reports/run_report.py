# SPDX-License-Identifier: Apache-2.0
"""The report of one run, as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .page import Page, Tone
from .run_curves import curves_section, evaluation_section, throughput_section
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

_TONES: dict[str, Tone] = {"finished": "good", "stopped": "warn", "running": "warn"}


def run_page(path: Path) -> Page:
    """Page of a run directory. Raises ReportError when it is none."""
    run = read_run(path)
    status = str(run.record.get("status") or "unknown: run.json does not say")
    sections = (
        identity_section(run),
        curves_section(run),
        throughput_section(run),
        evaluation_section(run),
        precision_section(run),
        fusions_section(run),
        effective_section(run),
        attempts_section(run),
        recipe_section(run),
    )
    return Page(f"Run {run.name}", _state(run, status), _TONES.get(status, "bad"), sections)


def _state(run: RunFiles, status: str) -> str:
    attempts = run.record.get("attempts") or [{}]
    reason = attempts[-1].get("reason")
    steps = [event.get("step") for event in run.events("train")]
    parts = [status if not reason else f"{status} ({reason})"]
    if steps:
        total = (run.recipe.get("schedule") or {}).get("train_iters")
        parts.append(f"step {steps[-1]}" + (f" of {total}" if total else ""))
    gone = [name for name in FILES if name in run.missing or name in run.damaged]
    if gone:
        parts.append(f"not complete: {', '.join(gone)}")
    return "; ".join(parts)
