# SPDX-License-Identifier: Apache-2.0
"""Every packer in other tiles."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import torch

from mxflux.fusions import timing
from mxflux.mx import QuantSpec
from mxflux.mx.triton_packers import TILES, Tile
from packer_bench.ahead import capability, compile_all
from packer_bench.inputs import texts
from packer_bench.measure import KINDS, TIMED, launch, packer_bytes

#: Tiles that --sweep tries, the likeliest first: BLOCK_M, BLOCK_N, warps.
SWEEP: dict[str, tuple[Tile, ...]] = {
    "row": ((4, 1024, 4), (8, 512, 4), (16, 256, 4), (4, 512, 4)),
    "column": ((128, 64, 4), (64, 128, 4), (256, 64, 8), (128, 64, 8), (128, 128, 8)),
    "dual": ((128, 64, 4), (128, 128, 8), (64, 128, 4), (128, 64, 8), (64, 64, 4)),
}


def sweep_order() -> Iterator[tuple[str, str, Tile]]:
    """Kind, format and tile: the likeliest tile of every packer, then the next, and so on."""
    for place in range(max(map(len, SWEEP.values()))):
        for kind in KINDS:
            for name in TIMED:
                if place < len(SWEEP[kind]):
                    yield kind, name, SWEEP[kind][place]


def sweep(x: torch.Tensor, budget: float) -> tuple[dict[tuple[str, str], dict[Tile, float]], int]:
    """(kind, format) -> tile -> microseconds, and how many were left when `budget` s were over."""
    deadline = time.monotonic() + budget
    found: dict[tuple[str, str], dict[Tile, float]] = {}
    order, sm = list(sweep_order()), capability()
    shape, stride = tuple(x.shape), tuple(x.stride())
    compile_all(
        {(shape, stride, x.dtype, *texts(k, QuantSpec(n)), tile, sm) for k, n, tile in order}
    )
    for done, (kind, name, tile) in enumerate(order):
        if time.monotonic() > deadline:
            return found, len(order) - done
        run, _, _ = launch(x, kind, name, tile)
        took = timing.device_time(run, repeats=10)
        found.setdefault((kind, name), {})[tile] = took
        print(f"{kind} {name} {tile}: {took:.0f} us", file=sys.stderr, flush=True)
    return found, 0


def sweep_table(x: torch.Tensor, bandwidth: float, budget: float) -> list[str]:
    """Every tile of SWEEP that the budget allows, and the best; the package's table is set by hand.

    The best tile of a kind is the one with the least sum over the formats.
    """
    found, left = sweep(x, budget)
    lines = ["| packs | format | best tile, warps | us | byte floor | all, us |"]
    lines += ["|---|---|---|---:|---:|---|"]
    for (kind, name), times in found.items():
        best = min(times, key=times.__getitem__)
        floor = packer_bytes(kind, name) / bandwidth * 1e6
        every = ", ".join(f"{tile} {took:.0f}" for tile, took in times.items())
        lines.append(f"| {kind} | {name} | {best} | {times[best]:.0f} | {floor:.0f} | {every} |")
    lines.append("")
    for kind in KINDS:
        per_format = [times for (k, _), times in found.items() if k == kind]
        sums = {
            tile: sum(times[tile] for times in per_format)
            for tile in SWEEP[kind]
            if per_format and all(tile in times for times in per_format)
        }
        if sums:
            best = min(sums, key=sums.__getitem__)
            lines.append(f"- {kind}: {best} is best in sum; the table has {TILES['cuda'][kind]}")
    return [*lines, f"- {left} tiles not tried: the budget of {budget:.0f} s was over"]
