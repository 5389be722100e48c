# SPDX-License-Identifier: Apache-2.0
"""Prefetch of the next evaluation's first batch: order, one batch, joining, errors."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from mxflux.evaluation.prefetch import ValidationBatches

if TYPE_CHECKING:
    from collections.abc import Iterator


class Source:
    """Counts what is opened and taken, and in which thread."""

    def __init__(self, count: int = 4, gate: threading.Event | None = None) -> None:
        self.count = count
        self.gate = gate
        self.opened = 0
        self.taken: list[tuple[int, str]] = []
        self.fetched = threading.Event()

    def __call__(self) -> Iterator[Any]:
        self.opened += 1
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        for number in range(self.count):
            if self.gate is not None:
                assert self.gate.wait(10)
            self.taken.append((number, threading.current_thread().name))
            self.fetched.set()
            yield {"number": number}


def numbers(batches: Iterator[Any]) -> list[int]:
    return [batch["number"] for batch in batches]


def test_nothing_is_read_before_the_first_evaluation() -> None:
    source = Source()
    batches = ValidationBatches(source)
    assert (source.opened, source.taken) == (0, [])
    assert numbers(batches.take()) == [0, 1, 2, 3]


def test_the_thread_takes_one_batch_and_the_order_stays() -> None:
    source = Source()
    batches = ValidationBatches(source)
    batches.arm()
    assert source.fetched.wait(10)
    taken = batches.take()
    assert source.taken == [(0, "validation-prefetch")]
    assert numbers(taken) == [0, 1, 2, 3]
    assert [number for number, _ in source.taken] == [0, 1, 2, 3]
    assert {name for _, name in source.taken[1:]} == {threading.current_thread().name}
    assert source.opened == 1


def test_the_consumer_waits_for_the_thread() -> None:
    gate = threading.Event()
    source = Source(gate=gate)
    batches = ValidationBatches(source)
    batches.arm()
    threading.Timer(0.2, gate.set).start()
    taken = batches.take()
    # take() has returned, so the thread is through: the iterator has one user at a time.
    assert source.taken == [(0, "validation-prefetch")]
    assert numbers(taken) == [0, 1, 2, 3]


def test_what_the_thread_raised_the_consumer_raises() -> None:
    def broken() -> Iterator[Any]:
        raise FileNotFoundError("validation/shard-000.tar is gone")

    batches = ValidationBatches(broken)
    batches.arm()
    with pytest.raises(FileNotFoundError, match="shard-000"):
        batches.take()


def test_an_error_after_the_first_batch_is_raised_where_it_happens() -> None:
    def broken() -> Iterator[Any]:
        yield {"number": 0}
        raise OSError("truncated")

    batches = ValidationBatches(broken)
    batches.arm()
    taken = batches.take()
    assert next(taken) == {"number": 0}
    with pytest.raises(OSError, match="truncated"):
        next(taken)


def test_an_empty_split_stays_empty() -> None:
    batches = ValidationBatches(Source(0))
    batches.arm()
    assert numbers(batches.take()) == []


def test_it_can_be_switched_off() -> None:
    source = Source()
    batches = ValidationBatches(source, enabled=False)
    batches.arm()
    assert source.opened == 0
    assert numbers(batches.take()) == [0, 1, 2, 3]


def test_arming_twice_fetches_once_and_closing_drops_it() -> None:
    source = Source()
    batches = ValidationBatches(source)
    batches.arm()
    batches.arm()
    batches.close()
    assert source.opened == 1
    assert [number for number, _ in source.taken] == [0]
    assert numbers(batches.take()) == [0, 1, 2, 3]
