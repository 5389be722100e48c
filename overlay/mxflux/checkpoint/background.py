# SPDX-License-Identifier: Apache-2.0
"""Saves that go on while training does."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from megatron.core.dist_checkpointing.strategies.async_utils import AsyncCallsQueue

from .distributed import WRITE_ERRORS, Save, begin_save
from .together import everywhere, gather

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mxflux.flux.architecture import FluxArchitecture

    from .chunks import Described
    from .sharded import StateDict
    from .training_record import TrainingRecord


@dataclass
class _Pending:
    save: Save
    settle: Callable[[], object]
    described: Future[Described] | None = None
    """Set when all files are written; done when this rank has hashed its share."""


class AsyncSaves:
    """The saves of a run that are not published yet.

    Written by a process, hashed by a thread, published by :meth:`poll`, which is called on every
    rank after every step. A job that dies before leaves the tracker on the previous checkpoint.
    """

    def __init__(self) -> None:
        self._queue = AsyncCallsQueue()
        self._pending: deque[_Pending] = deque()
        self._published: list[Path] = []
        """Complete, and not returned by poll yet."""
        self._hashing = ThreadPoolExecutor(1, thread_name_prefix="checkpoint-hash")

    @property
    def pending(self) -> int:
        """How many saves are not published."""
        return len(self._pending)

    def start(
        self,
        root: Path,
        iteration: int,
        state: StateDict,
        architecture: FluxArchitecture,
        training: TrainingRecord | None = None,
        *,
        settle: Callable[[], object] = lambda: None,
    ) -> None:
        """Begin to write; ``settle`` runs once it is published. Waits for an earlier save, which
        the next poll returns.

        Raises as begin_save does.
        """
        self._publish_complete(blocking=True)
        save = begin_save(root, iteration, state, architecture, training)
        request = save.write_in_background(state)
        entry = _Pending(save, settle)
        request.add_finalize_fn(lambda: self._written(entry))
        self._queue.schedule_async_request(request)
        self._pending.append(entry)

    def poll(self, *, blocking: bool = False) -> list[Path]:
        """Publish what is complete; with ``blocking`` everything. Returns what no poll has yet.

        Called on every rank. Raises CheckpointError on every rank when a save failed; the latest
        checkpoint is the previous one then, and the failed save is forgotten.
        """
        self._publish_complete(blocking)
        published, self._published = self._published, []
        return published

    def close(self) -> list[Path]:
        """Publish everything and end the helpers."""
        published = self.poll(blocking=True)
        self._queue.close()
        self._hashing.shutdown()
        return published

    def _publish_complete(self, blocking: bool) -> None:
        if not self._pending:
            return
        self._finalize(blocking)
        while self._pending and self._is_hashed(self._pending[0], blocking):
            entry = self._pending.popleft()
            self._published.append(self._publish(entry))

    def _finalize(self, blocking: bool) -> None:
        try:
            self._queue.maybe_finalize_async_calls(blocking=blocking)
        except WRITE_ERRORS as error:
            failed = self._pending.popleft().save
            failed.discard()
            raise failed.failed(error) from error

    def _written(self, entry: _Pending) -> None:
        entry.described = self._hashing.submit(entry.save.describe_share)

    def _is_hashed(self, entry: _Pending, blocking: bool) -> bool:
        if entry.described is None:
            return False
        return blocking or all(gather(entry.described.done()))

    def _publish(self, entry: _Pending) -> Path:
        assert entry.described is not None
        try:
            final = entry.save.publish(everywhere(entry.described.result))
        except OSError:
            entry.save.discard()
            raise
        entry.settle()
        return final
