# SPDX-License-Identifier: Apache-2.0
"""The process through which checkpoint writers report outlasts a signal to the whole job."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.managers import SyncManager

from mxflux.training.helpers import outlast_signals


def test_sigterm_does_not_end_a_helper() -> None:
    manager = SyncManager(ctx=multiprocessing.get_context("spawn"))
    manager.start(outlast_signals, (os.getpid(),))
    try:
        helpers = multiprocessing.active_children()
        assert len(helpers) == 1
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(int(str(helpers[0].pid)), number)
        time.sleep(0.2)
        queue = manager.Queue()
        queue.put("written")
        assert queue.get(timeout=10) == "written"
    finally:
        manager.shutdown()
    assert multiprocessing.active_children() == []
