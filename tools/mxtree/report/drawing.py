# SPDX-License-Identifier: Apache-2.0
"""The dependency graph as shapes for an inline SVG."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from mxtree.report import escape
from mxtree.report.layout import BOX_HEIGHT, BOX_WIDTH, lay_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxtree.report.graph import Graph

#: Characters of 11 px type that fit into a box.
_LABEL_COLUMNS = 31
#: How far a line leaves a box straight, in pixels, before it bends.
_STIFFNESS = 22


@dataclass(frozen=True)
class Box:
    """One patch: its place, what is written in it and what shows when it is pointed at."""

    x: int
    y: int
    id: str
    label: str
    tip: str
    outcome: str


@dataclass(frozen=True)
class Drawing:
    """Boxes, and the ``d`` attribute of each line."""

    width: int
    height: int
    box_width: int
    box_height: int
    boxes: tuple[Box, ...]
    lines: tuple[str, ...]


def draw(graph: Graph) -> Drawing:
    """Return the shapes of a graph; a line ends at the patch that is built on."""
    layout = lay_out(len(graph.nodes), graph.edges)
    boxes = tuple(
        Box(
            x=x,
            y=y,
            id=node.id,
            label=escape.shorten(node.title, _LABEL_COLUMNS),
            tip=escape.one_line(f"{node.name}: {node.title} ({node.outcome})"),
            outcome=node.outcome,
        )
        for node, (x, y) in zip(graph.nodes, layout.boxes, strict=True)
    )
    lines = tuple(_curve(points) for points in layout.lines)
    return Drawing(layout.width, layout.height, BOX_WIDTH, BOX_HEIGHT, boxes, lines)


def _curve(points: Sequence[tuple[int, int]]) -> str:
    x, y = points[0]
    path = [f"M{x},{y}"]
    for (x1, y1), (x2, y2) in pairwise(points):
        if x1 == x2:
            path.append(f"V{y2}")
        else:
            path.append(f"C{x1},{y1 - _STIFFNESS} {x2},{y2 + _STIFFNESS} {x2},{y2}")
    return " ".join(path)
