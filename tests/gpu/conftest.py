# SPDX-License-Identifier: Apache-2.0
"""What every test on a GPU needs."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let Inductor of torch 2.11 use what torch 2.11 itself deprecates."""
    own = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
    for item in items:
        item.add_marker(own)
