# SPDX-License-Identifier: Apache-2.0
"""Device and host time of a call on a GPU: medians, cold L2, the host shown to be ahead."""

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
    """Median microseconds between events around run(), each time after the L2 was flushed.

    The flush runs while the host enqueues. Where it ended first the device waited for the host, and
    the sample says nothing about the device: with too few samples left all are taken again behind
    longer flushes. RuntimeError when even those are too short.
    """
    for _ in range(warmup):
        run()
    for flushes in (1, 2, 4, 8, 16, 32):
        found = _samples(run, repeats, flushes)
        if 2 * len(found) >= repeats:
            return statistics.median(found)
    raise RuntimeError("the host never gets ahead of the device: run() waits for it")


def _samples(run: Callable[[], Any], repeats: int, flushes: int) -> list[float]:
    """Microseconds of those runs that were enqueued whole before the device reached them."""
    buffer, kept = _flush_buffer(), []
    torch.cuda.synchronize()
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(flushes):
            buffer.sum()
        start.record()
        run()
        stop.record()
        if not start.query():
            kept.append((start, stop))
    torch.cuda.synchronize()
    return [start.elapsed_time(stop) * 1e3 for start, stop in kept]


def enqueue_time(run: Callable[[], Any], calls: int = 200, rounds: int = 25) -> float:
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
