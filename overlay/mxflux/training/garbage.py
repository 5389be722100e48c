# SPDX-License-Identifier: Apache-2.0
"""Garbage collection at chosen steps, so that ranks do not pause at different ones."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


class ManualGarbageCollection:
    """Switches the automatic collector off for a with block and collects every ``interval`` steps.

    ``interval`` 0 collects at the start only. With ``enabled`` False it changes nothing.
    """

    def __init__(self, *, enabled: bool, interval: int = 0) -> None:
        self.enabled = enabled
        self.interval = interval

    def __enter__(self) -> ManualGarbageCollection:
        if self.enabled:
            gc.disable()
            gc.collect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.enabled:
            gc.enable()

    def after_step(self, step: int) -> None:
        """Collect when ``step`` is due."""
        if self.interval and step % self.interval == 0:
            self.now()

    def now(self) -> None:
        """Collect."""
        if self.enabled:
            gc.collect()
