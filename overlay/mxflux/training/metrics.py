# SPDX-License-Identifier: Apache-2.0
"""metrics.jsonl: one JSON object a line, the source of truth about a run."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

FILE = "metrics.jsonl"


class MetricsLog:
    """Appends events to a run's metrics.jsonl, each flushed; on other ranks than 0 does nothing.

    A line that a killed run left incomplete is removed at opening.
    """

    def __init__(self, folder: Path, *, enabled: bool = True) -> None:
        self.path = folder / FILE
        self._file = None
        if enabled:
            drop_incomplete_line(self.path)
            self._file = self.path.open("a", encoding="utf-8")

    def write(self, event: str, **fields: Any) -> None:
        """Append one event with the time of now."""
        if self._file is None:
            return
        line = json.dumps({"event": event, **fields, "time": time.time()})
        self._file.write(line + "\n")
        self._file.flush()

    def close(self) -> None:
        """Sync and close the file."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None


def drop_incomplete_line(path: Path) -> None:
    """Cut a file after its last newline."""
    if not path.exists():
        return
    data = path.read_bytes()
    complete = data.rfind(b"\n") + 1
    if complete != len(data):
        os.truncate(path, complete)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All complete events of a run, oldest first; none when there is no file yet."""
    path = folder / FILE
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines if line]


def next_attempt(folder: Path) -> int:
    """Number of the attempt that starts now, from 1."""
    return 1 + len([event for event in read_metrics(folder) if event["event"] == "attempt"])
