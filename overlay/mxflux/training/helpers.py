# SPDX-License-Identifier: Apache-2.0
"""Processes that a rank starts end with it, also when it is killed. Imports no torch: they do."""

from __future__ import annotations

import ctypes
import importlib
import multiprocessing
import os
import signal
import sys
from multiprocessing.managers import SyncManager
from typing import Any

_PR_SET_PDEATHSIG = 1
_WRITER = "megatron.core.dist_checkpointing.strategies.filesystem_async"


def end_with_parent(parent: int) -> None:
    """Ask the kernel (Linux) for SIGKILL when the process ``parent``, which started this, dies."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the request
        os._exit(1)


def outlast_signals(parent: int) -> None:
    """End with ``parent`` alone: a SIGTERM to the whole job is its request to save, with this."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_with_parent(parent)


def own_checkpoint_helper() -> SyncManager | None:
    """Start the process through which Megatron's checkpoint writers report, tied to this one.

    Megatron starts it at the first save, in each rank, with no such tie: a rank that is killed
    would leave it behind for good, with hundreds of megabytes. Returns None when it runs already.
    """
    writer: Any = importlib.import_module(_WRITER)
    if writer._results_queue is not None:
        return None
    manager = SyncManager(ctx=multiprocessing.get_context("spawn"))
    manager.start(outlast_signals, (os.getpid(),))
    writer._results_queue = manager.Queue()
    return manager
