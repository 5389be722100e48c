# SPDX-License-Identifier: Apache-2.0
"""Notes that ranks leave in an attempt's logs: who they are, and how they ended."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_PROC = Path("/proc")
_NOTE = re.compile(r"rank-\d+\.json")
_TIME = re.compile(r"time\s+: (\S+)")
_SUMMARY = re.compile(r"rank\s+: (\d+) \(local_rank: \d+\)\s+exitcode\s+: (-?\d+) \(pid: (\d+)\)")
_CLOSED = re.compile(r"Sending process (\d+) closing signal")


@dataclass(frozen=True)
class RankNote:
    """One rank of an attempt. ``exit_code`` is None while it runs, and when it was killed.

    ``ended_by_launcher``: it was killed because another one had failed, or to stop the run.
    """

    rank: int
    pid: int
    host: str
    started: float
    finished: float | None = None
    exit_code: int | None = None
    ended_by_launcher: bool = False

    def ended(self, exit_code: int) -> RankNote:
        """Return the note of the end, now."""
        return replace(self, finished=time.time(), exit_code=exit_code)

    def write(self, logs: Path) -> None:
        """Write ``logs``/rank-N.json in one step."""
        path = logs / f"rank-{self.rank}.json"
        partial = path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(json.dumps(asdict(self)), encoding="utf-8")
        partial.replace(path)


@dataclass(frozen=True)
class Failure:
    """The rank that ended an attempt; ``exit_code`` below 0 is a signal, as subprocess has it."""

    rank: int
    exit_code: int

    def __str__(self) -> str:
        if self.exit_code < 0:
            return f"rank {self.rank} was killed by {_signal_name(-self.exit_code)}"
        return f"rank {self.rank} ended with exit code {self.exit_code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def read_notes(logs: Path) -> list[RankNote]:
    """Return the notes of an attempt, by rank."""
    paths = [path for path in logs.iterdir() if _NOTE.fullmatch(path.name)]
    notes = [RankNote(**json.loads(path.read_text("utf-8"))) for path in paths]
    return sorted(notes, key=lambda note: note.rank)


def is_running(note: RankNote) -> bool:
    """Return whether the process of a rank on this machine is there (a zombie is not)."""
    if note.finished is not None:
        return False
    if not _PROC.is_dir():
        return _exists(note.pid)
    try:
        stat = (_PROC / str(note.pid) / "stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def _exists(pid: int) -> bool:
    """Return what a system without /proc can tell; there a zombie counts as running."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def first_failure(notes: Iterable[RankNote], outputs: Iterable[str]) -> Failure | None:
    """Return the rank that ended an attempt, from the notes and each torchrun's own summary."""
    known = list(notes)
    found = []
    for text in outputs:
        failure = _of_node(known, text)
        if failure is not None:
            # A node whose ranks were all stopped from outside did not begin it.
            found.append((failure.exit_code == -signal.SIGTERM, _time(text), failure.rank, failure))
    return min(found)[-1] if found else None


def _time(torchrun: str) -> str:
    """Return when torchrun saw its first failure, as it spells it: sorts as text."""
    times = _TIME.findall(torchrun.rpartition("Root Cause")[2])
    return times[0] if times else ""


def _of_node(notes: list[RankNote], torchrun: str) -> Failure | None:
    """Return the rank that failed first on one node.

    torchrun names the failure that it saw first, and then the ranks that it stopped because of it.
    A rank that something else killed comes before one that raised: that one may have raised because
    the other was gone, and torchrun looks at both at once.
    """
    others, _, root = torchrun.rpartition("Root Cause")
    # torchrun kills what SIGTERM does not end in its half minute; that is no cause either.
    stopped = {note.pid for note in notes if note.ended_by_launcher}
    stopped.update(map(int, _CLOSED.findall(torchrun)))
    rows = [tuple(map(int, row)) for row in _SUMMARY.findall(root + others)]
    listed = [Failure(rank, code) for rank, code, _ in rows]
    for rank, code, pid in rows:
        if code < 0 and code != -signal.SIGTERM and pid not in stopped:
            return Failure(rank, code)
    raised = [note for note in notes if note.exit_code and note.rank in {f.rank for f in listed}]
    if raised:
        first = min(raised, key=lambda note: note.finished or 0.0)
        return Failure(first.rank, first.exit_code or 0)
    return listed[0] if listed else None


def send(note: RankNote, number: signal.Signals, *, group: bool = False) -> None:
    """Signal a rank, or with ``group`` the loader processes of its session as well."""
    try:
        if group:
            os.killpg(note.pid, number)
        else:
            os.kill(note.pid, number)
    except ProcessLookupError:
        pass
