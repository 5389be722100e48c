# SPDX-License-Identifier: Apache-2.0
"""The memory of a rank of a plan, as `mxtree recipe memory` estimates it."""

from __future__ import annotations

from typing import Any

from mxtree.recipes.memory import GIB, estimate

_PARTS = ("parameters", "gradients", "optimizer", "packed_weights", "activations")


def as_json(plan: Any) -> dict[str, Any]:
    """Return the estimate for the plan's data-parallel size, in bytes."""
    found = estimate(plan.loaded.recipe, [plan.batch.data_parallel_size])
    return {**found["ranks"][0], "capacity": found["capacity"]}


def line(plan: Any) -> str:
    """Return the estimate as one line, in GiB."""
    found = as_json(plan)
    parts = (f"{name.replace('_', ' ')} {found[name] / GIB:.2f}" for name in _PARTS if found[name])
    share = ""
    if found["capacity"]:
        share = f" ({found['total'] / found['capacity']:.0%} of the device)"
    return f"{found['total'] / GIB:.2f} GiB a rank{share}: {', '.join(parts)}"
