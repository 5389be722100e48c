# SPDX-License-Identifier: Apache-2.0
"""The optimizers inside Megatron's ChainedOptimizer, which may hold further ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def single_optimizers(optimizer: Any) -> Iterator[Any]:
    """Every optimizer that is no chain, in Megatron's order; ``optimizer`` itself if it is none."""
    chained = getattr(optimizer, "chained_optimizers", None)
    if chained is None:
        yield optimizer
        return
    for inner in chained:
        yield from single_optimizers(inner)
