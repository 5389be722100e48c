# SPDX-License-Identifier: Apache-2.0
"""Run the official checkers of mlperf_logging on the logs of runs."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .errors import ReportError
from .mlperf_order import evaluations, order_problems, read_events

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Outcome = Literal["passed", "failed", "not checked"]
RULESETS = ("6.0.0", "6.1.0")
SUBMISSION_RUNS = 10
"""Runs that a result of flux1 consists of; the convergence check means nothing for fewer."""
#: With fewer the mean without the fastest and the slowest is that of nothing.
_MEAN_OF_SOMETHING = 3
_LEVEL = re.compile(r"^(INFO|WARNING|ERROR) - ")
_REASON = re.compile(r"CHECK for|failed test|Required|Failed|RCP test|mean epochs|parsing|Error")
_INSTALL = (
    "{}: the checkers need mlperf-logging, numpy and scipy in the tree's environment: "
    "./mxtree install"
)
_LOGS = "mlperf/attempt-*/result_*.txt"


@dataclass(frozen=True)
class Check:
    """One check and what it said."""

    name: str
    outcome: Outcome
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class LogReport:
    """One log: its checks and its evaluations (samples, loss)."""

    path: str
    status: str
    seconds: float | None
    evaluations: tuple[tuple[int, float], ...]
    checks: tuple[Check, ...]
    older: tuple[str, ...] = field(default=())
    """Logs of earlier attempts of the run, which are runs of their own and are not checked."""


@dataclass(frozen=True)
class MLPerfReport:
    """Logs, and the convergence check over all of them together."""

    logs: tuple[LogReport, ...]
    convergence: tuple[Check, ...]

    @property
    def outcome(self) -> Outcome:
        """Failed when anything failed; what could not be checked of fewer runs does not count."""
        checks = [check for log in self.logs for check in log.checks] + list(self.convergence)
        return "failed" if any(check.outcome == "failed" for check in checks) else "passed"

    def to_json(self) -> dict[str, Any]:
        """The report as JSON-able values."""
        return {"outcome": self.outcome, **asdict(self)}


def check_runs(paths: Sequence[Path], rulesets: Sequence[str] = RULESETS) -> MLPerfReport:
    """Check run directories (their last attempt) or log files.

    Raises ReportError when a path has no log or the checkers are not installed.
    """
    found = [find_log(path) for path in paths]
    logs = tuple(_check_log(log, older, rulesets) for log, older in found)
    convergence = tuple(_convergence([log for log, _ in found], ruleset) for ruleset in rulesets)
    return MLPerfReport(logs, convergence)


def find_log(path: Path) -> tuple[Path, tuple[str, ...]]:
    """The log of a run's last attempt, and the names of earlier ones. Raises ReportError."""
    if path.is_file():
        return path, ()
    if not path.is_dir():
        raise ReportError(f"{path} is neither a run directory nor a log")
    logs = sorted(path.glob(_LOGS), key=lambda log: int(log.parent.name.partition("-")[2]))
    if not logs:
        raise ReportError(
            f"{path} has no MLPerf log ({_LOGS}): run a recipe with mlperf.enable: true"
        )
    return logs[-1], tuple(str(log.relative_to(path)) for log in logs[:-1])


def _check_log(path: Path, older: tuple[str, ...], rulesets: Sequence[str]) -> LogReport:
    events = read_events(path)
    problems = order_problems(events)
    checks = [_compliance(path, ruleset) for ruleset in rulesets]
    checks.append(Check("order and counts", "failed" if problems else "passed", tuple(problems)))
    times = {event["key"]: event["time_ms"] for event in events}
    stops = [event["metadata"].get("status") for event in events if event["key"] == "run_stop"]
    seconds = None
    if {"run_start", "run_stop"} <= times.keys():
        seconds = (times["run_stop"] - times["run_start"]) / 1e3
    return LogReport(
        str(path), str(stops[-1]) if stops else "no run_stop", seconds,
        tuple(evaluations(events)), tuple(checks), older,
    )  # fmt: skip


def _compliance(path: Path, ruleset: str) -> Check:
    """What ``python -m mlperf_logging.compliance_checker`` does, without a process a log."""
    try:
        from mlperf_logging.compliance_checker import mlp_compliance
    except ImportError as error:
        raise ReportError(_INSTALL.format(error)) from error
    mlp_compliance.enqueued_configs.clear()
    checker = mlp_compliance.make_checker("training", ruleset, quiet=False, werror=False)
    with _root_log() as lines:
        valid, *_ = mlp_compliance.main(
            str(path.absolute()), f"training_{ruleset}/common.yaml", checker
        )
    name = f"compliance {ruleset}"
    return Check(name, "passed") if valid else Check(name, "failed", _reasons("\n".join(lines)))


@contextmanager
def _root_log() -> Iterator[list[str]]:
    """Lines that the root logger gets, which show nowhere else."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    root.handlers, root.level = [handler], logging.INFO
    try:
        yield lines
    finally:
        root.handlers, root.level = handlers, level


def _convergence(paths: Sequence[Path], ruleset: str) -> Check:
    name = f"convergence (RCP) {ruleset}"
    few = f"{len(paths)} of the {SUBMISSION_RUNS} runs that a result of flux1 consists of"
    if len(paths) < _MEAN_OF_SOMETHING:
        return Check(name, "not checked", (few,))
    with tempfile.TemporaryDirectory() as folder:
        for number, path in enumerate(paths):
            Path(folder, f"result_{number}.txt").write_bytes(path.read_bytes())
        code, output = _run("rcp_checker", "--rcp_usage", "training", "--rcp_version", ruleset,
                            "--log_output", "log", folder)  # fmt: skip
    reasons = _reasons(output)
    if len(paths) < SUBMISSION_RUNS:
        return Check(name, "not checked", (few, *(f"so far: {line}" for line in reasons)))
    return Check(name, "failed" if code else "passed", reasons)


def _run(module: str, *arguments: str) -> tuple[int, str]:
    """Status and output of a checker. Raises ReportError when it is not installed."""
    with tempfile.TemporaryDirectory() as folder:  # both write a log file where they run
        done = subprocess.run(
            [sys.executable, "-m", f"mlperf_logging.{module}", *arguments],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if "No module named" in done.stderr:
        raise ReportError(_INSTALL.format(done.stderr.strip().splitlines()[-1]))
    return done.returncode, done.stdout + done.stderr


def _reasons(output: str) -> tuple[str, ...]:
    """The lines of a checker's output that say why."""
    lines = (_LEVEL.sub("", line).strip() for line in output.splitlines())
    kept = tuple(dict.fromkeys(line for line in lines if _REASON.search(line) and len(line) < 400))
    return kept or tuple(output.strip().splitlines()[-3:])
