# SPDX-License-Identifier: Apache-2.0
"""``python -m mxflux.reports.mlperf RUN...``: the official checkers of MLPerf on runs' logs."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .errors import ReportError
from .mlperf_check import RULESETS, LogReport, MLPerfReport, check_runs

OK, FAILED, USAGE, COULD_NOT_CHECK = 0, 1, 2, 4


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 passed, 1 a check failed, 4 nothing could be checked."""
    options = _parser().parse_args(arguments)
    try:
        report = check_runs(options.runs, options.ruleset or RULESETS)
    except (ReportError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return COULD_NOT_CHECK
    print(json.dumps(report.to_json(), indent=2) if options.json else to_text(report))
    return FAILED if report.outcome == "failed" else OK


def to_text(report: MLPerfReport) -> str:
    """The report for a terminal."""
    lines = []
    for log in report.logs:
        lines += _log_lines(log)
    for check in report.convergence:
        lines.append(f"{check.name}: {check.outcome}")
        lines += [f"    {line}" for line in check.lines]
    return "\n".join([*lines, report.outcome])


def _log_lines(log: LogReport) -> list[str]:
    took = "" if log.seconds is None else f", {log.seconds / 60:.2f} minutes"
    lines = [f"{log.path}: {log.status}{took}"]
    lines += [f"    earlier attempt, not checked: {name}" for name in log.older]
    lines += [f"    {samples:>12,} samples  loss {loss:.6f}" for samples, loss in log.evaluations]
    for check in log.checks:
        lines.append(f"  {check.name}: {check.outcome}")
        lines += [f"    {line}" for line in check.lines]
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mxtree report mlperf",
        description="Run MLPerf's compliance and convergence checkers on the logs of runs.",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directory or log")
    parser.add_argument(
        "--ruleset", action="append", choices=RULESETS, help="rules to check; all by default"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
