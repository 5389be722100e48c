# SPDX-License-Identifier: Apache-2.0
"""The first signal asks, the second one acts, and afterwards all is as before."""

from __future__ import annotations

import os
import signal

import pytest

from mxflux.training.signals import StopRequest


def test_a_signal_becomes_a_reason() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        assert stop.reason is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.reason == "received SIGTERM"
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_second_interrupt_interrupts() -> None:
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.reason == "received SIGINT"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()
