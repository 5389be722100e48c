# SPDX-License-Identifier: Apache-2.0
"""Attempts of a run: start the ranks, record how they ended, start again from the checkpoint."""

from __future__ import annotations

import fcntl
import signal
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from mxflux.recipe.launch import progress, ranks, record, telling
from mxflux.recipe.launch.errors import LaunchError
from mxflux.recipe.launch.node import Follower, Grace, Node, Stop
from mxflux.recipe.launch.rank import CONSOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

OK, CHECK_FAILED, USAGE, RUNTIME, INTERRUPTED = 0, 1, 2, 3, 130


@dataclass(frozen=True)
class Settings:
    """How a run is watched. ``console`` gets rank 0's output, ``notes`` what the launcher says."""

    max_restarts: int = 0
    grace: Grace = field(default_factory=Grace)
    node: type[Node] = Node
    console: TextIO | None = None
    notes: TextIO | None = None


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended."""

    status: str
    exit_code: int
    reason: str | None = None
    failure: ranks.Failure | None = None
    done: progress.Done = field(default_factory=progress.Done)

    @property
    def may_go_better(self) -> bool:
        """Return whether another attempt makes sense.

        A failed check and a wrong setting fail again, and so does a program error before the first
        step. A killed rank, or an error after some steps, may be the machine's.
        """
        if self.status != "failed" or self.exit_code != RUNTIME:
            return False
        killed = self.failure is not None and self.failure.exit_code < 0
        return killed or self.done.last_step is not None


def supervise(
    run: Path,
    argv_of: Callable[[Path], list[str]],
    environment: Mapping[str, str],
    settings: Settings,
    **facts: object,
) -> int:
    """Run attempts of ``run`` until one finishes, and return the exit status.

    ``argv_of`` gives the command for an attempt's folder of logs; ``facts`` go into each attempt's
    record. 0: finished, or stopped after saving; 1: a check failed; 2: cannot be started like that;
    3: failed; 130: stopped by ^C.
    """
    with hold(run), Stop() as stop:
        restarts = 0
        while True:
            outcome = _attempt(run, argv_of, environment, settings, stop, facts)
            if not outcome.may_go_better or stop.received or restarts == settings.max_restarts:
                if outcome.status == "failed" and settings.notes is not None:
                    hint = telling.next_step(run, may_go_better=outcome.may_go_better)
                    print(f"next: {hint}", file=settings.notes, flush=True)
                return outcome.exit_code
            restarts += 1
            step = progress.checkpointed_step(run)
            start = "from the start" if step is None else f"from the checkpoint of step {step}"
            _say(settings, f"restart {restarts} of {settings.max_restarts}, {start}")


@contextmanager
def hold(run: Path) -> Iterator[None]:
    """Hold the run's lock, which the kernel drops when this process dies.

    Raises LaunchError when the run is going on, or has ranks on this machine that nobody watches.
    """
    with (run / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LaunchError(
                f"{run} is running already", hint="wait for it to end, or stop it", code=USAGE
            ) from None
        _refuse_lost_ranks(run)
        yield


def _refuse_lost_ranks(run: Path) -> None:
    logs = run / "logs"
    attempts = sorted(logs.glob("attempt-*")) if logs.is_dir() else []
    running = [n for folder in attempts for n in ranks.read_notes(folder) if _is_of(run, n)]
    if running:
        pids = " ".join(str(note.pid) for note in running)
        raise LaunchError(
            f"{run} still has ranks of an earlier attempt on this machine: {pids}",
            hint=f"end them: kill {pids}",
        )


def _is_of(run: Path, note: ranks.RankNote) -> bool:
    """Return whether the process of ``note`` is there and still this run's."""
    if not ranks.is_running(note):
        return False
    try:
        return str(run).encode() in Path(f"/proc/{note.pid}/cmdline").read_bytes()
    except OSError:
        return False


def _attempt(
    run: Path,
    argv_of: Callable[[Path], list[str]],
    environment: Mapping[str, str],
    settings: Settings,
    stop: Stop,
    facts: Mapping[str, object],
) -> Outcome:
    logs = run / "logs" / f"attempt-{len(record.read(run)['attempts']) + 1}"
    logs.mkdir(parents=True, exist_ok=True)
    argv = argv_of(logs)
    position = progress.size(run)
    number = record.begin_attempt(run, argv, **facts)
    _say(settings, f"attempt {number}: logs in {logs}")
    node = settings.node(logs, stop, settings.grace, Follower(logs / CONSOLE, settings.console))
    try:
        status = node.run(argv, environment, record.read(run).get("cwd") or str(Path.cwd()))
    except OSError as error:
        reason = f"it could not be started or watched: {error}"
        record.end_attempt(run, status="failed", exit_code=RUNTIME, reason=reason)
        raise
    outcome = _judge(logs, status, stop, progress.since(run, position))
    _tell(logs, outcome, settings)  # first: on a full disk the record cannot be written
    record.end_attempt(
        run,
        status=outcome.status,
        exit_code=outcome.exit_code,
        first_step=outcome.done.first_step,
        last_step=outcome.done.last_step,
        reason=outcome.reason,
    )
    return outcome


def _judge(logs: Path, status: int, stop: Stop, done: progress.Done) -> Outcome:
    asked = stop.received[0] if stop.received else None
    if status == 0:
        if asked is None and done.stop_reason is None:
            return Outcome("finished", OK, done=done)
        reason = done.stop_reason or f"received {signal.Signals(asked or signal.SIGTERM).name}"
        code = INTERRUPTED if asked is signal.SIGINT else OK
        return Outcome("stopped", code, reason, done=done)
    failure = ranks.first_failure(ranks.read_notes(logs), torchrun_output(logs))
    reason = str(failure) if failure else f"torchrun ended with status {status}"
    code = RUNTIME
    if failure and failure.exit_code in (CHECK_FAILED, USAGE):
        code = failure.exit_code
    if asked is not None:
        reason = f"{reason} after {asked.name}, before it had saved"
        code = INTERRUPTED if asked is signal.SIGINT else RUNTIME
        return Outcome("stopped", code, reason, failure, done)
    return Outcome("failed", code, reason, failure, done)


def torchrun_output(logs: Path) -> list[str]:
    """Return what torchrun wrote, by node."""
    files = sorted(logs.glob("torchrun*.log"))
    return [file.read_text("utf-8", "replace") for file in files]


def _tell(logs: Path, outcome: Outcome, settings: Settings) -> None:
    """Say how an attempt ended; of a failure with the end of the log that shows it."""
    step = outcome.done.last_step
    after = "before its first step" if step is None else f"after step {step}"
    if outcome.status == "finished":
        _say(settings, f"finished {after}" if step is not None else "finished")
        return
    if outcome.status == "stopped":
        _say(settings, f"stopped {after}: {outcome.reason}")
        return
    _say(settings, f"error: {outcome.reason}, {after}")
    if settings.notes is not None:
        print(*telling.end_of_log(logs, outcome.failure), sep="\n", file=settings.notes, flush=True)


def _say(settings: Settings, text: str) -> None:
    if settings.notes is not None:
        print(f"mxtree: {text}", file=settings.notes, flush=True)
