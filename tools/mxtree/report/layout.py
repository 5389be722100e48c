# SPDX-License-Identifier: Apache-2.0
"""Where the boxes and lines of a small layered graph go (after Sugiyama et al., 1981)."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Pixels: a box, the gaps between boxes and layers, the lane of a line that passes a layer.
BOX_WIDTH, BOX_HEIGHT = 208, 46
GAP, LAYER_GAP, LANE, MARGIN = 20, 44, 10, 8

#: Parts of the graph stand side by side up to this width.
PAGE_WIDTH = 1070

_SWEEPS = 12

#: Items of a layer are boxes (>= 0) and bends of long lines (< 0).
Layers = list[list[int]]
Neighbours = dict[int, list[int]]


@dataclass(frozen=True)
class Layout:
    """Left upper corner of each box, and the points of each line from its box to the lower one."""

    width: int
    height: int
    boxes: tuple[tuple[int, int], ...]
    lines: tuple[tuple[tuple[int, int], ...], ...]


def lay_out(count: int, edges: Sequence[tuple[int, int]]) -> Layout:
    """Place ``count`` boxes so that each is below every box that it has an edge to.

    Every edge goes from a higher index to a lower one. Parts that no edge joins stand side by side.
    """
    boxes: list[tuple[int, int]] = [(0, 0)] * count
    lines: list[tuple[tuple[int, int], ...]] = [()] * len(edges)
    x = y = width = height = 0
    for part in _parts(count, edges):
        index = {box: i for i, box in enumerate(part)}
        own = [number for number, (box, _) in enumerate(edges) if box in index]
        done = _lay_out_part(len(part), [(index[edges[n][0]], index[edges[n][1]]) for n in own])
        if x and x + done.width > PAGE_WIDTH:
            x, y = 0, height
        for box, (left, top) in zip(part, done.boxes, strict=True):
            boxes[box] = (x + left, y + top)
        for number, line in zip(own, done.lines, strict=True):
            lines[number] = tuple((x + left, y + top) for left, top in line)
        x += done.width
        width, height = max(width, x), max(height, y + done.height)
    return Layout(width, height, tuple(boxes), tuple(lines))


def _parts(count: int, edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return the connected parts of the graph, each in order."""
    part_of = [[box] for box in range(count)]
    for box, lower in edges:
        one, other = part_of[box], part_of[lower]
        if one is not other:
            one += other
            for moved in other:
                part_of[moved] = one
    return sorted({id(part): sorted(part) for part in part_of}.values())


def _lay_out_part(count: int, edges: Sequence[tuple[int, int]]) -> Layout:
    layers, chains = _layers(count, edges)
    above, below = _neighbours(chains)
    layers = _ordered(layers, above, below)
    centres = _centres(layers, above, below)
    level = {item: depth for depth, layer in enumerate(layers) for item in layer}
    step = BOX_HEIGHT + LAYER_GAP
    left = min((centres[item] - _width(item) / 2 for item in centres), default=0) - MARGIN
    right = max((centres[item] + _width(item) / 2 for item in centres), default=0) + MARGIN
    middle = {item: round(centre - left) for item, centre in centres.items()}
    boxes = tuple(
        (middle[box] - BOX_WIDTH // 2, MARGIN + level[box] * step) for box in range(count)
    )
    lines = tuple(
        tuple(
            (middle[item], MARGIN + level[item] * step + y)
            for place, item in enumerate(chain)
            for y in _docks(place, chain)
        )
        for chain in chains
    )
    height = 2 * MARGIN + len(layers) * step - LAYER_GAP
    return Layout(math.ceil(right - left), max(height, 0), boxes, lines)


def _docks(place: int, chain: Sequence[int]) -> tuple[int, ...]:
    """Return where, from the top of its layer, a line on its way up touches an item."""
    if place == 0:
        return (0,)
    return (BOX_HEIGHT,) if place == len(chain) - 1 else (BOX_HEIGHT, 0)


def _width(item: int) -> int:
    return BOX_WIDTH if item >= 0 else LANE


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> tuple[Layers, list[list[int]]]:
    """Return the items of each layer, and each edge as a chain with a bend in every layer."""
    depth = [0] * count
    for box, lower in sorted(edges):
        depth[box] = max(depth[box], depth[lower] + 1)
    layers: Layers = [[] for _ in range(max(depth, default=-1) + 1)]
    for box in range(count):
        layers[depth[box]].append(box)
    chains = []
    bend = -1
    for box, lower in edges:
        chain = [box]
        for level in range(depth[box] - 1, depth[lower], -1):
            layers[level].append(bend)
            chain.append(bend)
            bend -= 1
        chains.append([*chain, lower])
    return layers, chains


def _neighbours(chains: Sequence[Sequence[int]]) -> tuple[Neighbours, Neighbours]:
    above, below = defaultdict(list), defaultdict(list)
    for chain in chains:
        for low, high in pairwise(chain):
            above[low].append(high)
            below[high].append(low)
    return above, below


def _ordered(layers: Layers, above: Neighbours, below: Neighbours) -> Layers:
    """Return the layers ordered for few crossings: barycentres, swept down and up."""
    best, fewest = layers, _crossings(layers, above)
    current = [list(layer) for layer in layers]
    for sweep in range(_SWEEPS):
        is_down = sweep % 2 == 0
        order = range(1, len(current)) if is_down else range(len(current) - 2, -1, -1)
        for depth in order:
            fixed = current[depth - 1 if is_down else depth + 1]
            place = {item: float(i) for i, item in enumerate(fixed)}
            own = {item: float(i) for i, item in enumerate(current[depth])}
            towards = above if is_down else below
            current[depth].sort(key=lambda i: _mean(towards.get(i, ()), place, own[i]))
        crossings = _crossings(current, above)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in current], crossings
    return best


def _mean(items: Sequence[int], place: Mapping[int, float], default: float) -> float:
    return sum(place[item] for item in items) / len(items) if items else default


def _crossings(layers: Layers, above: Neighbours) -> int:
    total = 0
    for upper, lower in pairwise(layers):
        place = {item: i for i, item in enumerate(upper)}
        seen: list[int] = []
        for item in lower:
            ends = sorted(place[other] for other in above.get(item, ()))
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _centres(layers: Layers, above: Neighbours, below: Neighbours) -> dict[int, float]:
    """Return the horizontal centre of each item: near its neighbours, without overlaps."""
    centres: dict[int, float] = {}
    for layer in layers:
        centres |= _spread(layer, dict.fromkeys(layer, 0.0))
    for sweep in range(_SWEEPS):
        towards = above if sweep % 2 == 0 else below
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = {i: _mean(towards.get(i, ()), centres, centres[i]) for i in layer}
            centres |= _spread(layer, wanted)
    return centres


def _spread(layer: Sequence[int], wanted: Mapping[int, float]) -> dict[int, float]:
    placed: dict[int, float] = {}
    edge = float("-inf")
    for item in layer:
        placed[item] = max(wanted[item], edge + _width(item) / 2)
        edge = placed[item] + _width(item) / 2 + GAP
    shift = sum(wanted[i] - placed[i] for i in layer) / len(layer) if layer else 0.0
    return {item: centre + shift for item, centre in placed.items()}
