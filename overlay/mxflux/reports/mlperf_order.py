# SPDX-License-Identifier: Apache-2.0
"""What an MLPerf log must fulfil and the official checker does not look at.

It takes a second run_stop with the same value for a warning, and does not compare places: a clock
that starts after training passes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mxflux.evaluation.mlperf_guardian import parse_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Event = dict[str, Any]
_ONCE = ("init_stop", "run_start", "run_stop")
#: What may happen before the clock starts: nothing that reads the data set.
_BEFORE_THE_CLOCK = ("block_start", "block_stop", "eval_start", "eval_stop", "eval_accuracy")
_FREQUENCY, _TARGET = "evaluation_frequency", 0.586


def read_events(path: Path) -> list[Event]:
    """Events of a log in order. Raises OSError when it cannot be read."""
    lines = path.read_text("utf-8", errors="replace").splitlines()
    return [event for event in map(parse_line, lines) if event]


def order_problems(events: Sequence[Event]) -> list[str]:
    """What is wrong with the order of a run, in one pass; empty when nothing is."""
    keys = [event["key"] for event in events]
    found = [f"{key} occurs {keys.count(key)} times, not once" for key in _ONCE
             if keys.count(key) != 1]  # fmt: skip
    if "run_start" in keys:
        start = keys.index("run_start")
        early = sorted({key for key in keys[:start] if key in _BEFORE_THE_CLOCK})
        found += [f"{key} comes before run_start: the clock starts before data is read"
                  for key in early]  # fmt: skip
        if "init_start" not in keys[:start]:
            found.append("init_start does not come before run_start")
    if "run_stop" in keys and keys.index("run_stop") != len(keys) - 1:
        found.append(f"{keys[-1]} comes after run_stop, which ends a run")
    found += _unpaired(keys)
    times = [event["time_ms"] for event in events]
    if times != sorted(times):
        found.append("time_ms goes back")
    return found + _counts(events) + _status(events)


def evaluations(events: Sequence[Event]) -> list[tuple[int, float]]:
    """(samples, loss) of each evaluation."""
    return [
        (int(event["metadata"].get("samples_count", -1)), float(event["value"]))
        for event in events
        if event["key"] == "eval_accuracy"
    ]


def _unpaired(keys: Sequence[str]) -> list[str]:
    found = []
    for name in ("eval", "block"):
        ends = [key for key in keys if key in {f"{name}_start", f"{name}_stop"}]
        expected = [f"{name}_start", f"{name}_stop"] * len(ends)
        if ends != expected[: len(ends)]:
            found.append(f"{name}_start and {name}_stop do not alternate")
    return found


def _counts(events: Sequence[Event]) -> list[str]:
    frequency = next((event["value"] for event in events if event["key"] == _FREQUENCY), None)
    counts = [samples for samples, _ in evaluations(events)]
    steps = [after - before for before, after in zip([0, *counts], counts, strict=False)]
    return [
        f"evaluation {number} comes after {step} samples, not {_FREQUENCY} = {frequency}"
        for number, step in enumerate(steps, start=1)
        # The last one may come early: the run's budget ended.
        if step != frequency and not (number == len(steps) and 0 < step < (frequency or 0))
    ]


def _status(events: Sequence[Event]) -> list[str]:
    status = [e["metadata"].get("status") for e in events if e["key"] == "run_stop"]
    reached = [loss for _, loss in evaluations(events) if 0 < loss <= _TARGET]
    if status == ["success"] and not reached:
        return [f"run_stop says success, but no evaluation is at most {_TARGET}"]
    return []
