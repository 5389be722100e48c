# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and SIGINT as a request to stop after the current step."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType, TracebackType

STOPS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Within a with block the first signal only sets ``reason``; a second one acts as before.

    A step is never cut short: who runs the loop reads ``reason`` between steps and saves.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        for number in STOPS:
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  signal's form
        received = signal.Signals(number)
        self.reason = f"received {received.name}"
        signal.signal(received, self._previous[received])
