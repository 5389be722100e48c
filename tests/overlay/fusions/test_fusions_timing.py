# SPDX-License-Identifier: Apache-2.0
"""timing.device_time on a simulated queue: device time whatever the host costs."""

from __future__ import annotations

import pytest
import torch

from mxflux.fusions import timing

FLUSH = 250.0


class Queue:
    """A host and a device, each with a clock in microseconds; work starts when both are there."""

    def __init__(self) -> None:
        self.host = self.device = 0.0
        self.flushes = 0

    def enqueue(self, host: float, device: float) -> None:
        """Host time to enqueue, then device time to run."""
        self.host += host
        self.device = max(self.device, self.host) + device

    def synchronize(self) -> None:
        """The host waits for the device."""
        self.host = max(self.host, self.device)

    def sum(self) -> None:
        """The flush buffer's read."""
        self.flushes += 1
        self.enqueue(5, FLUSH)


class Event:
    """A CUDA event on the simulated queue."""

    queue: Queue

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0.0

    def record(self) -> None:
        """Reached when the device is done with what was enqueued before."""
        self.at = max(self.queue.device, self.queue.host)

    def query(self) -> bool:
        """Whether the device is past it, as the host sees it now."""
        return self.at <= self.queue.host

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds."""
        return (other.at - self.at) / 1e3


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    simulated = Queue()
    Event.queue = simulated
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", simulated.synchronize)
    monkeypatch.setattr(timing, "_flush_buffer", lambda: simulated)
    return simulated


@pytest.mark.parametrize(("host", "flushes"), [(20.0, 1), (200.0, 1), (900.0, 4), (3000.0, 16)])
def test_a_slow_host_lengthens_the_flush_not_the_result(
    queue: Queue, host: float, flushes: int
) -> None:
    got = timing.device_time(lambda: queue.enqueue(host, 90.0), repeats=8)
    assert got == pytest.approx(90.0)
    tries = [n for n in (1, 2, 4, 8, 16, 32) if n <= flushes]
    assert queue.flushes == 8 * sum(tries)


def test_a_call_that_waits_for_the_device_has_no_device_time(queue: Queue) -> None:
    def run() -> None:
        queue.enqueue(20, 90)
        queue.synchronize()

    with pytest.raises(RuntimeError, match="never gets ahead"):
        timing.device_time(run, repeats=4)
