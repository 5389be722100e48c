# SPDX-License-Identifier: Apache-2.0
"""Fetch the first batch of the next evaluation while training goes on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Batch = Mapping[str, Any]


class ValidationBatches:
    """Hands out one iterator of validation batches an evaluation, in the loader's order.

    ``factory`` gives the batches of one evaluation from its start. ``arm`` opens the next
    evaluation's and takes its first batch in a thread; ``take`` waits for that thread before it
    touches the iterator. Without ``arm`` (or with ``enabled`` False) nothing happens before
    ``take``: no batch is read before the run's clock started.
    """

    def __init__(self, factory: Callable[[], Iterable[Batch]], *, enabled: bool = True) -> None:
        self._factory = factory
        self.enabled = enabled
        self._pending: _Pending | None = None

    def arm(self) -> None:
        """Start to fetch the next evaluation's first batch; does nothing when that is going on."""
        if self.enabled and self._pending is None:
            self._pending = _Pending(self._factory)

    def take(self) -> Iterator[Batch]:
        """Batches of the next evaluation. Raises what the thread raised."""
        if self._pending is None:
            return iter(self._factory())
        pending, self._pending = self._pending, None
        return pending.join()

    def close(self) -> None:
        """Wait for a thread that is still reading and drop its batch; what it raised is dropped."""
        if self._pending is not None:
            self._pending.thread.join()
            self._pending = None


class _Pending:
    """A thread that opens an iterator and takes one batch of it."""

    def __init__(self, factory: Callable[[], Iterable[Batch]]) -> None:
        self._factory = factory
        self._batches: Iterator[Batch] | None = None
        self._first: list[Batch] = []
        self._error: BaseException | None = None
        # A daemon: a loader that hangs must not keep a failed run from ending.
        self.thread = threading.Thread(target=self._fetch, name="validation-prefetch", daemon=True)
        self.thread.start()

    def _fetch(self) -> None:
        try:
            self._batches = iter(self._factory())
            for batch in self._batches:
                self._first.append(batch)
                break
        except BaseException as error:  # noqa: BLE001  raised again in the thread that consumes
            self._error = error

    def join(self) -> Iterator[Batch]:
        self.thread.join()
        if self._error is not None:
            raise self._error
        return self._chained()

    def _chained(self) -> Iterator[Batch]:
        yield from self._first
        if self._first and self._batches is not None:
            yield from self._batches
