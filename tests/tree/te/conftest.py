# SPDX-License-Identifier: Apache-2.0
"""TE from the tree under test, on the stub of its C++ part and a CPU that answers like a gfx950."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import te_cuda
import te_native
import te_stub

te_stub.install()


@pytest.fixture(autouse=True)
def gfx950(monkeypatch: pytest.MonkeyPatch) -> None:
    """One gfx950-like device for the length of a test, and fresh counts of native calls."""
    te_native.CALLS.clear()
    te_cuda.gfx950(monkeypatch)
