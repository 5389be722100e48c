# SPDX-License-Identifier: Apache-2.0
"""Run torchrun on one node: give its ranks time to save, and end what a dead rank leaves hanging.

torchrun passes SIGTERM on and kills after 30 seconds: too little to save a large model. So signals
go to the ranks themselves. A rank that waits for a dead one in a collective does not see signals:
it is killed after a grace period.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TextIO

from mxflux.recipe.launch import ranks
from mxflux.recipe.launch.rank import WORKING_DIRECTORY, end_with_parent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import FrameType

TORCHRUN_LOG = "torchrun.log"
_POLL_S = 0.1
#: Seconds that torchrun has to end by itself, with its summary, after its ranks were killed.
_TORCHRUN_S = 15.0


@dataclass(frozen=True)
class Grace:
    """Seconds that ranks have: to save after a stop, and to end after one of them failed."""

    stop_s: float = 600.0
    failure_s: float = 5.0


@dataclass
class Stop:
    """Within a with block SIGTERM, SIGINT and SIGHUP are counted; the second means: end at once.

    A SIGHUP that is ignored, as under nohup, stays ignored.
    """

    received: list[signal.Signals] = field(default_factory=list)
    _previous: dict[signal.Signals, object] = field(default_factory=dict)

    def __enter__(self) -> Stop:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_IGN:
                continue
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  signal's form
        self.received.append(signal.Signals(number))


class Follower:
    """Copies what is appended to a file to a stream."""

    def __init__(self, path: Path, stream: TextIO | None) -> None:
        self._path, self._stream, self._position = path, stream, 0

    def copy(self) -> None:
        """Copy what has come since the last call."""
        if self._stream is None or not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        if not data:
            return
        self._position += len(data)
        try:
            self._stream.write(data.decode("utf-8", "replace"))
            self._stream.flush()
        except BrokenPipeError:  # who looked on has gone, as `| head` does; the run goes on
            self._stream = None


@dataclass
class Node:
    """The ranks of one attempt on this machine."""

    logs: Path
    stop: Stop
    grace: Grace = field(default_factory=Grace)
    follow: Follower | None = None
    _asked: set[int] = field(default_factory=set)
    _stop_at: float | None = None
    _failed_at: float | None = None
    _ended_at: float | None = None
    _process: subprocess.Popen[bytes] = field(init=False)

    def run(
        self, argv: Sequence[str], environment: Mapping[str, str], cwd: str | None = None
    ) -> int:
        """Run ``argv`` (torchrun) to its end and return its exit status.

        It starts in the folder of its logs, where no module lies that it could take for its own;
        the ranks go on to ``cwd``, or to where they are told already.
        """
        there = {} if cwd is None else {WORKING_DIRECTORY: cwd}
        with (self.logs / self._log_name()).open("ab") as log:
            self._process = process = subprocess.Popen(
                argv,
                env={**environment, **there},
                cwd=self.logs,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # ^C of the terminal comes to us alone
                preexec_fn=end_with_parent,  # noqa: PLW1509  one system call, no lock is taken
            )
        try:
            while process.poll() is None and not self._is_stuck():
                self._look()
                time.sleep(_POLL_S)
        finally:
            self._end_all()
            if process.poll() is None:
                process.kill()
            status = process.wait()
            self._copy()
        return status

    def _log_name(self) -> str:
        return TORCHRUN_LOG

    def _look(self) -> None:
        self._copy()
        notes = self._mine()
        if self.stop.received:
            self._pass_stop_on(notes)
        if self._failed_at is None and any(_has_failed(note) for note in notes):
            self._failed_at = time.monotonic()
        if self._is_over_time():
            self._ended_at = self._ended_at or time.monotonic()
            self._end_all()

    def _is_stuck(self) -> bool:
        """Return whether torchrun is still there although none of its ranks is."""
        return self._ended_at is not None and time.monotonic() > self._ended_at + _TORCHRUN_S

    def _pass_stop_on(self, notes: Sequence[ranks.RankNote]) -> None:
        if self._stop_at is None:
            self._stop_at = time.monotonic()
        if notes and not any(ranks.is_running(note) for note in notes):
            # torchrun may wait minutes for the other nodes, which were stopped as well.
            self._ended_at = self._ended_at or time.monotonic()
        for note in notes:
            # Once: the second signal would cut a rank short that is saving.
            if note.pid not in self._asked and ranks.is_running(note):
                self._asked.add(note.pid)
                ranks.send(note, signal.SIGTERM)

    def _is_over_time(self) -> bool:
        now = time.monotonic()
        if len(self.stop.received) > 1:
            return True
        if self._failed_at is not None and now > self._failed_at + self.grace.failure_s:
            return True
        return self._stop_at is not None and now > self._stop_at + self.grace.stop_s

    def _end_all(self) -> None:
        """Kill the ranks that are left, and the loader processes of those that are not."""
        for note in self._mine():
            if ranks.is_running(note) and not note.ended_by_launcher:
                replace(note, ended_by_launcher=True).write(self.logs)
            ranks.send(note, signal.SIGKILL, group=True)

    def _mine(self) -> list[ranks.RankNote]:
        host = socket.gethostname()
        return [note for note in ranks.read_notes(self.logs) if note.host == host]

    def _copy(self) -> None:
        if self.follow is not None:
            self.follow.copy()


def _has_failed(note: ranks.RankNote) -> bool:
    return bool(note.exit_code) or (note.exit_code is None and not ranks.is_running(note))


def main() -> int:
    """``python -m mxflux.recipe.launch.node LOGS STOP_SECONDS TORCHRUN...``: srun's one task."""
    from pathlib import Path

    logs, seconds, argv = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    with Stop() as stop:
        return NodeOfMany(logs, stop, Grace(stop_s=seconds)).run(argv, os.environ)


class ThroughSrun(Node):
    """All nodes of a job: srun passes signals on to the `NodeOfMany` of each, and not we."""

    def _look(self) -> None:
        self._copy()
        if self.stop.received and self._stop_at is None:
            self._stop_at = time.monotonic()
            self._process.send_signal(signal.SIGTERM)
        if self._is_over_time():
            self._ended_at = self._ended_at or time.monotonic()

    def _end_all(self) -> None:
        """Leave it to srun and Slurm, which know every process of the step."""

    def _log_name(self) -> str:
        return "srun.log"


class NodeOfMany(Node):
    """One node of a job with many: its torchrun has a log of its own."""

    def _log_name(self) -> str:
        return f"torchrun-{socket.gethostname()}.log"


if __name__ == "__main__":
    sys.exit(main())
