# SPDX-License-Identifier: Apache-2.0
"""Memory of a rank by data-parallel size, from the closed forms of mxflux.recipe.memory."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .tables import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxflux.recipe import Recipe

FORMAT = 1
GIB = 2**30
CAPACITY = {"mi355x": 288 * 10**9, "h200": 141 * 10**9}
"""Bytes of a device's memory, as its data sheet has them."""
SIZES = (1, 2, 4, 8, 16, 32, 64)


def estimate(recipe: Recipe, sizes: Sequence[int]) -> dict[str, Any]:
    """Bytes by data-parallel size, and what they depend on."""
    from mxflux.recipe.memory import rank_memory

    architecture = recipe.architecture
    found = {size: rank_memory(recipe, size) for size in sizes}
    return {
        "format": FORMAT,
        "name": recipe.name,
        "parameters": architecture.num_parameters,
        "linears_in_blocks": architecture.num_quantized_linears,
        "micro_batch_size": recipe.schedule.micro_batch_size,
        "device": recipe.device,
        "capacity": CAPACITY.get(recipe.device),
        "ranks": [
            {"data_parallel_size": size, **asdict(memory), "total": memory.total}
            for size, memory in found.items()
        ],
    }


def as_text(result: dict[str, Any]) -> str:
    """A table in GiB, with the share of the device."""
    capacity = result["capacity"]
    columns = ("parameters", "gradients", "optimizer", "packed_weights", "activations", "total")
    header = ("DP", *(name.replace("_", " ") for name in columns))
    rows = []
    for rank in result["ranks"]:
        cells = [f"{rank[name] / GIB:,.2f}" for name in columns]
        rows.append([str(rank["data_parallel_size"]), *cells])
        if capacity:
            rows[-1].append(f"{rank['total'] / capacity:.0%}")
    if capacity:
        header = (*header, f"of {capacity / GIB:.0f}")
    title = (
        f"{result['name']}: {result['parameters']:,} parameters, "
        f"{result['linears_in_blocks']} linears in blocks, "
        f"micro-batch {result['micro_batch_size']}; GiB a rank"
    )
    note = "Not counted: allocator gaps, workspaces of kernels, buffers of collectives."
    return "\n".join([title, *table(header, rows, right=set(range(len(header)))), note])


def parse_sizes(text: str) -> list[int]:
    """Data-parallel sizes of ``1,8,64``; `FatalError` names what is none."""
    from mxtree.errors import FatalError

    sizes = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if min(sizes) < 1:
        raise FatalError(f"--dp {text}: not a list of positive numbers", hint="--dp 1,8,64")
    return sizes
