# SPDX-License-Identifier: Apache-2.0
"""The memory estimate of a plan, from mxflux.recipe.memory."""

from __future__ import annotations

from typing import Any


def lines(plan: Any) -> list[str]:
    """Return the estimate as lines."""
    return []


def as_json(plan: Any) -> Any:
    """Return the estimate for machines."""
    return None
