# SPDX-License-Identifier: Apache-2.0
"""Sections of a run report that tell how the run went: curves, throughput, evaluations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .curves import curve, default_window, smoothed, spread
from .errors import ReportError
from .mlperf_check import find_log
from .mlperf_order import read_events
from .page import Cell, Section, Table, code, row
from .run_sections import absent
from .svg import Line, chart

if TYPE_CHECKING:
    from .curves import Curve
    from .run_files import RunFiles

_MEASURES = {
    "step_seconds": "seconds a step",
    "images_per_second_per_gpu": "images/s per device",
    "tflops_per_gpu": "TFLOP/s per device",
    "peak_share": "share of peak",
}


def curves_section(run: RunFiles) -> Section:
    """Loss, learning rate, gradient norm and throughput over samples."""
    train, evaluations = run.events("train"), run.events("evaluation")
    loss, validation = curve(train, "loss"), curve(evaluations, "loss")
    if not train and not evaluations:
        return Section("Curves", absent=absent(run, "metrics.jsonl") or (_NOTHING,))
    text = [
        _end_of(train, loss, "training loss"),
        _end_of(evaluations, validation, "validation loss"),
    ]
    mean = smoothed(loss, default_window(len(loss.x)))
    charts = (
        chart("loss", [Line("training", loss, "faint"), Line("training, smoothed", mean, "s0"),
                       Line("validation", validation, "dots s1")]),
        chart("learning rate", [Line("", curve(train, "lr"))]),
        chart("gradient norm", [Line("", curve(train, "grad_norm"))], log=True),
        chart("images/s per device", [Line("", curve(train, "images_per_second_per_gpu"))]),
    )  # fmt: skip
    table = _summary(train)
    return Section(
        "Curves",
        text=tuple(filter(None, text)),
        tables=(table,) if table else (),
        charts=tuple(filter(None, charts)),
        absent=absent(run, "metrics.jsonl"),
    )


def throughput_section(run: RunFiles) -> Section:
    """Median and range by attempt; the first logged step of an attempt compiles and is left out."""
    rows = []
    for number, events in enumerate(by_attempt(run.metrics), start=1):
        for key, label in _MEASURES.items():
            measured = spread(_numbers(events[1:], key))
            if measured:
                rows.append(row(number, label, measured.median, measured.low, measured.high,
                                measured.count))  # fmt: skip
    head = ("attempt", "", "median", "5 %", "95 %", "steps")
    if not rows:
        return Section("Throughput", absent=absent(run, "metrics.jsonl") or (_NOTHING,))
    text = "Logged steps without the first of each attempt. A resumed attempt counts its own only."
    return Section("Throughput", (text,), (Table(head, tuple(rows)),))


def evaluation_section(run: RunFiles) -> Section:
    """Every evaluation, and the last one by noise level."""
    found = run.events("evaluation")
    if not found:
        return Section("Evaluation", text=("no evaluation was recorded",))
    rows = tuple(
        row(e.get("step"), e.get("samples"), _loss(e.get("loss")), e.get("count"), e.get("seconds"))
        for e in found
    )
    tables = [Table(("step", "samples", "loss", "counted", "seconds"), rows,
                    f"{len(rows)} evaluations", folded=len(rows) > 12)]  # fmt: skip
    levels = found[-1].get("per_timestep")
    if isinstance(levels, dict) and levels:
        ordered = sorted(levels.items(), key=lambda item: int(item[0]))
        cells = row("loss", *(_loss(value) for _, value in ordered))
        head = ("last evaluation by timestep", *(f"{level}/8" for level, _ in ordered))
        tables.append(Table(head, (cells,)))
    return Section("Evaluation", tables=tuple(tables))


def mlperf_section(run: RunFiles) -> Section | None:
    """What the MLPerf log says; None for a run without one."""
    try:
        log, older = find_log(run.path)
    except ReportError:
        return None
    events = read_events(log)
    times = {event["key"]: event["time_ms"] for event in events}
    status = [event["metadata"].get("status") for event in events if event["key"] == "run_stop"]
    took = (times["run_stop"] - times["run_start"]) / 60e3 if status else None
    wrong = Cell("no run_stop", "bad")
    rows = (
        row("status", str(status[-1]) if len(status) == 1 else wrong),
        row("minutes from run_start to run_stop", took),
        row("log", code(str(log.relative_to(run.path)))),
        *(row("earlier attempt", code(name)) for name in older),
    )
    text = f"The official checkers: mxtree report mlperf {run.path.name}"
    return Section("MLPerf", (text,), (Table(("", ""), rows),))


def by_attempt(metrics: tuple[dict[str, Any], ...]) -> list[list[dict[str, Any]]]:
    """Train events of each attempt that logged any."""
    attempts: list[list[dict[str, Any]]] = [[]]
    for event in metrics:
        if event.get("event") == "attempt":
            attempts.append([])
        elif event.get("event") == "train":
            attempts[-1].append(event)
    return [events for events in attempts if events]


_NOTHING = "metrics.jsonl has no training step and no evaluation yet"


def _numbers(events: list[dict[str, Any]], key: str) -> list[float]:
    return [float(e[key]) for e in events if isinstance(e.get(key), int | float)]


def _end_of(events: list[dict[str, Any]], values: Curve, what: str) -> str:
    if not values:
        return ""
    broken = sum(not math.isfinite(value) for value in values.y)
    note = f"; {broken} values are not finite" if broken else ""
    step = events[-1].get("step")
    return f"{what} {values.y[-1]:.6g} at step {step}, {values.x[-1]:,.0f} samples{note}"


def _summary(train: list[dict[str, Any]]) -> Table | None:
    rows = []
    for key in ("loss", "grad_norm", "lr"):
        values = curve(train, key)
        finite = [value for value in values.y if math.isfinite(value)]
        if finite:
            rows.append(row(key, values.y[0], values.y[-1], min(finite), max(finite)))
    return Table(("", "first", "last", "least", "greatest"), tuple(rows)) if rows else None


def _loss(value: Any) -> Cell:
    if not isinstance(value, int | float):
        return Cell("\u2014")
    return Cell(f"{value:.6f}", "" if math.isfinite(value) else "bad")
