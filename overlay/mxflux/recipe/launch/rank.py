# SPDX-License-Identifier: Apache-2.0
"""What torchrun starts for each rank: a log of its own, a note of how it ended, then the module.

Both streams go to the rank's log, also what C++ writes. What Python prints on rank 0 goes to the
terminal too, by way of a file; warnings and errors do not, they are in the log.

``python -m mxflux.recipe.launch.rank LOGS MODULE ARGUMENTS...``; the rank is torchrun's ``RANK``.
It starts where no code lies and goes to the run's working directory once modules are no longer
looked for there: Python 3.10 knows no PYTHONSAFEPATH.
"""

from __future__ import annotations

import ctypes
import io
import os
import runpy
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import TextIO

from mxflux.recipe.launch.ranks import RankNote

#: What rank 0 prints, in an attempt's logs.
CONSOLE = "console.log"
#: Tells a rank from where the relative paths of its recipe are.
WORKING_DIRECTORY = "MXFLUX_WORKING_DIRECTORY"
_USAGE = 2
_INTERRUPTED = 130
_RUNTIME = 3
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Run the module as ``__main__`` and return its exit status; what it raises is status 3."""
    logs, module, rank = Path(sys.argv[1]), sys.argv[2], int(os.environ["RANK"])
    end_with_parent()
    _redirect(logs / f"rank-{rank}.log")
    if rank == 0:
        sys.stdout = Both(sys.stdout, (logs / CONSOLE).open("a", encoding="utf-8"))
    note = RankNote(rank, os.getpid(), socket.gethostname(), time.time())
    note.write(logs)
    leave_out_working_directory()
    status = go_to_working_directory() or _run(module, sys.argv[3:])
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    note.ended(status).write(logs)
    return status


def end_with_parent() -> None:
    """Ask the kernel (Linux) for SIGTERM when torchrun dies: a rank must not outlive its run."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def leave_out_working_directory() -> None:
    """Drop what ``python -m`` puts first on sys.path where PYTHONSAFEPATH is unknown: 3.10."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)


def go_to_working_directory() -> int:
    """Change to what $MXFLUX_WORKING_DIRECTORY names; return the status to end with, 0: go on."""
    try:
        os.chdir(os.environ.pop(WORKING_DIRECTORY, "."))
    except OSError as error:
        print(f"error: the working directory of the run: {error}", file=sys.stderr)
        return _USAGE
    return 0


def _redirect(log: Path) -> None:
    """Send both streams to ``log``, also what C++ writes."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


class Both(io.TextIOBase):
    """A stream that writes to two."""

    def __init__(self, first: TextIO, second: TextIO) -> None:
        self._streams = (first, second)

    def fileno(self) -> int:
        """Return that of the first, for who goes around Python."""
        return self._streams[0].fileno()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str, /) -> int:
        """Write to both; the second at once, someone is looking at it."""
        for stream in self._streams:
            stream.write(text)
        self._streams[1].flush()
        return len(text)

    def flush(self) -> None:
        """Flush both."""
        for stream in self._streams:
            stream.flush()


def _run(module: str, arguments: list[str]) -> int:
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return _status(end)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BaseException:  # noqa: BLE001  torch's CheckpointException is no Exception
        traceback.print_exc()
        return _RUNTIME
    return 0


def _status(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


if __name__ == "__main__":
    result = main()
    if result:
        os._exit(result)  # threads of a failed rank must not keep it alive
