# SPDX-License-Identifier: Apache-2.0
"""TE from the tree under test, on the stub of its C++ part and a CPU that answers like a gfx950."""

from __future__ import annotations

import pytest
from support import te_cuda, te_native, te_stub

te_stub.install()


@pytest.fixture(autouse=True)
def gfx950(monkeypatch: pytest.MonkeyPatch) -> None:
    """One gfx950-like device for the length of a test, and fresh counts of native calls."""
    te_native.CALLS.clear()
    te_cuda.gfx950(monkeypatch)
