# SPDX-License-Identifier: Apache-2.0
"""What every test needs."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Hear SIGINT also as a background job, which a shell starts with it ignored.

    Children inherit that, and what is tested leaves an ignored signal ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
