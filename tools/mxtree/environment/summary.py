# SPDX-License-Identifier: Apache-2.0
"""The table at the end of `mxtree test`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.environment.results import totals

if TYPE_CHECKING:
    from mxtree.environment.results import Counts, EnvironmentResult


def lines(environments: list[EnvironmentResult]) -> list[str]:
    """Return the table, and as its last line ``N passed, N failed[, N skipped]``."""
    if not environments:
        return []
    width = max(len("environment"), *(len(environment.name) for environment in environments))
    head = f"{'environment':{width}}  result  {'passed':>6}  {'failed':>6}  {'skipped':>7}"
    table = [f"{head}  {'controls':>9}  {'setup s':>7}  {'test s':>7}"]
    for environment in environments:
        tests = environment.tests
        result = "ok" if environment.success else "FAILED"
        table.append(
            f"{environment.name:{width}}  {result:6}  {tests.passed:6}  {tests.failed:6}  "
            f"{tests.skipped:7}  {_controls(environment.controls):>9}  "
            f"{environment.setup_seconds:7.1f}  {environment.seconds:7.1f}"
        )
    return [*table, "", closing_line(totals(environments))]


def closing_line(counts: Counts) -> str:
    """Return the counts as a plain line that people and machines read alike."""
    skipped = f", {counts.skipped} skipped" if counts.skipped else ""
    return f"{counts.passed} passed, {counts.failed} failed{skipped}"


def _controls(counts: Counts) -> str:
    if not counts.passed and not counts.failed:
        return "-"
    return f"{counts.passed}/{counts.passed + counts.failed}"
