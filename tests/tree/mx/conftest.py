# SPDX-License-Identifier: Apache-2.0
"""Megatron from the tree under test, imported without Transformer Engine."""

from __future__ import annotations

import sys

import pytest
from support.megatron_alone import import_megatron

import_megatron()


@pytest.fixture(autouse=True)
def _no_te(monkeypatch: pytest.MonkeyPatch) -> None:
    """Megatron's late imports find no Transformer Engine either."""
    monkeypatch.setitem(sys.modules, "transformer_engine", None)
