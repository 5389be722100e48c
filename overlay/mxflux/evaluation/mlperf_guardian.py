# SPDX-License-Identifier: Apache-2.0
"""Ends the MLPerf log of a process that died without doing so: ``python -m ... LOG PID``.

It waits until its standard input closes or its parent is gone, whatever killed that, and then
adds run_stop "aborted" to a log that has a run_start and no run_stop. It imports no torch.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any

TOKEN = ":::MLLOG "  # noqa: S105  the mark of an MLPerf log line
_POLL_SECONDS = 0.5


def wait_for_end(parent: int) -> None:
    """Return when standard input closes or the parent is no longer ``parent``.

    Forked loader workers keep the pipe open, so its end alone would not do.
    """
    while os.getppid() == parent:
        ready, _, _ = select.select([sys.stdin], [], [], _POLL_SECONDS)
        if ready and not os.read(sys.stdin.fileno(), 1):
            return


def keys_of(path: Path) -> list[str]:
    """Keys of a log's complete lines, in order."""
    lines = path.read_text("utf-8", errors="replace").splitlines()
    return [event["key"] for event in map(parse_line, lines) if event]


def parse_line(line: str) -> dict[str, Any] | None:
    """The event of a log line; None for another line or one that was cut off."""
    if not line.startswith(TOKEN):
        return None
    try:
        event = json.loads(line[len(TOKEN) :])
    except json.JSONDecodeError:
        return None
    return event if isinstance(event, dict) else None


def finish(path: Path) -> bool:
    """Add run_stop when the log lacks it; returns whether it did."""
    keys = keys_of(path)
    if "run_start" not in keys or "run_stop" in keys:
        return False
    if not path.read_bytes().endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")
    from mxflux.evaluation.mlperf_log import close_logger, open_logger

    logger = open_logger(path)
    logger.end("run_stop", metadata={"status": "aborted", "reason": "process died"})
    close_logger(logger)
    return True


def main() -> int:
    """Entry point."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    path, parent = sys.argv[1:]
    wait_for_end(int(parent))
    finish(Path(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
