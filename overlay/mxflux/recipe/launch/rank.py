# SPDX-License-Identifier: Apache-2.0
"""What torchrun starts for each rank: a log of its own, a note of how it ended, then the module.

``python -m mxflux.recipe.launch.rank LOGS MODULE ARGUMENTS...``; the rank is torchrun's ``RANK``.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

from mxflux.recipe.launch.ranks import RankNote

_INTERRUPTED = 130
_RUNTIME = 3
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Run the module as ``__main__`` and return its exit status; what it raises is status 3."""
    logs, module, rank = Path(sys.argv[1]), sys.argv[2], int(os.environ["RANK"])
    end_with_parent()
    _redirect(logs / f"rank-{rank}.log")
    note = RankNote(rank, os.getpid(), socket.gethostname(), time.time())
    note.write(logs)
    status = _run(module, sys.argv[3:])
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    note.ended(status).write(logs)
    return status


def end_with_parent() -> None:
    """Ask the kernel (Linux) for SIGTERM when torchrun dies: a rank must not outlive its run."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _redirect(log: Path) -> None:
    """Send both streams to ``log``, also what C++ writes."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


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
