# SPDX-License-Identifier: Apache-2.0
"""What an attempt did, from the lines that it added to metrics.jsonl."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

FILE = "metrics.jsonl"
TRACKER = Path("checkpoints", "latest_checkpointed_iteration.txt")


@dataclass(frozen=True)
class Done:
    """Step that an attempt started after, newest step, and why it stopped before the end."""

    first_step: int | None = None
    last_step: int | None = None
    stop_reason: str | None = None


def size(run: Path) -> int:
    """Return how long metrics.jsonl is now, in bytes."""
    path = run / FILE
    return path.stat().st_size if path.exists() else 0


def since(run: Path, position: int) -> Done:
    """Return what the lines after ``position`` say; a line that is not complete does not count."""
    path = run / FILE
    if not path.exists():
        return Done()
    with path.open("rb") as file:
        # The trainer cuts an incomplete line of a killed attempt: the file may be shorter now.
        file.seek(min(position, path.stat().st_size))
        lines = file.read().split(b"\n")[:-1]
    first, last, stopped = None, None, None
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        kind = event.get("event")
        if kind == "attempt" and first is None:
            first = event.get("step")
        elif kind == "train":
            last = event.get("step")
        elif kind == "stop":
            stopped = event.get("reason")
    return Done(first, last, stopped)


def checkpointed_step(run: Path) -> int | None:
    """Return the step that the run's newest checkpoint is of, None when there is none."""
    try:
        return int((run / TRACKER).read_text(encoding="utf-8").strip())
    except (FileNotFoundError, ValueError):
        return None
