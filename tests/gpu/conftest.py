# SPDX-License-Identifier: Apache-2.0
"""What every test on a GPU needs."""

from __future__ import annotations

import pytest

OWN = ("`torch.jit", ".*torch.autograd.function.Function.*should not be instantiated")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let Inductor of torch 2.11 use what torch 2.11 itself deprecates."""
    for message in OWN:
        own = pytest.mark.filterwarnings(f"ignore:{message}:DeprecationWarning")
        for item in items:
            item.add_marker(own)
