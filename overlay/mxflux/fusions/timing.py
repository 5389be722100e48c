# SPDX-License-Identifier: Apache-2.0
"""Device and host time of a call on a GPU: medians, cold L2, the host kept ahead of the device."""

from __future__ import annotations

import functools
import statistics
import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

FLUSH_BYTES = 1 << 30
"""Read before each timed call: evicts every L2 and keeps the device busy while the host enqueues.

Read, not written: dirty lines would be written back inside the timed region, 14 us on an H200.
"""


@functools.cache
def _flush_buffer() -> torch.Tensor:
    return torch.zeros(FLUSH_BYTES // 4, dtype=torch.float32, device="cuda")


def device_time(run: Callable[[], Any], repeats: int = 20, warmup: int = 3) -> float:
    """Median microseconds between events around run(), each time after the L2 was flushed."""
    buffer = _flush_buffer()
    for _ in range(warmup):
        run()
    events = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        for _ in range(repeats)
    ]
    torch.cuda.synchronize()
    for start, stop in events:
        buffer.sum()
        start.record()
        run()
        stop.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(stop) * 1e3 for start, stop in events)


def enqueue_time(run: Callable[[], Any], calls: int = 200, rounds: int = 5) -> float:
    """Least microseconds of host time a call takes to return; run it on small tensors, so that no
    queue fills.
    """
    for _ in range(20):
        run()
    best = float("inf")
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            run()
        best = min(best, (time.perf_counter() - start) / calls * 1e6)
    torch.cuda.synchronize()
    return best


def copy_bandwidth(size: int = 1 << 31) -> float:
    """Bytes a second of a device-to-device copy, read plus written: the roof that every share
    refers to.
    """
    source = torch.empty(size, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    return 2 * size / device_time(lambda: target.copy_(source)) * 1e6
