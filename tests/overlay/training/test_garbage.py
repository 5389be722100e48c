# SPDX-License-Identifier: Apache-2.0
"""Collection happens when it is due, and the automatic collector comes back."""

from __future__ import annotations

import gc
import weakref

from mxflux.training.garbage import ManualGarbageCollection


class Cycle:
    """Refers to itself: only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


def test_cycles_go_at_the_chosen_steps_only() -> None:
    with ManualGarbageCollection(enabled=True, interval=10) as collector:
        assert not gc.isenabled()
        seen = weakref.ref(Cycle())
        collector.after_step(9)
        assert seen() is not None
        collector.after_step(10)
        assert seen() is None
    assert gc.isenabled()


def test_switched_off_it_changes_nothing() -> None:
    with ManualGarbageCollection(enabled=False, interval=1) as collector:
        assert gc.isenabled()
        seen = weakref.ref(Cycle())
        gc.disable()
        collector.after_step(1)
        collector.now()
        assert seen() is not None
        gc.enable()
