# SPDX-License-Identifier: Apache-2.0
"""Which patch builds on which: the graph, and its text for mermaid and Graphviz."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxtree.rebase.story import GRAPH_LIMIT
from mxtree.report import escape
from mxtree.report.classes import class_of

if TYPE_CHECKING:
    from mxtree.rebase.story import Story


@dataclass(frozen=True)
class Node:
    """A patch of the graph."""

    name: str
    title: str
    outcome: str

    @property
    def id(self) -> str:
        return self.name[:4]


@dataclass(frozen=True)
class Graph:
    """``edges`` are (patch, patch it builds on) as indices of ``nodes``, which are in series order.

    ``apart`` are the patches without an edge. With ``is_missing`` nobody worked the edges out.
    """

    nodes: tuple[Node, ...]
    edges: tuple[tuple[int, int], ...]
    apart: tuple[Node, ...]
    is_missing: bool = False


def graph_of(story: Story) -> Graph:
    """Return the dependency graph of a series."""
    rebase = story.rebase
    steps = {s.name: Node(s.name, s.title, class_of(rebase, s)) for s in rebase.steps}
    if len(steps) > GRAPH_LIMIT and not story.dependencies:
        return Graph((), (), (), is_missing=True)
    joined = {name for edge in story.dependencies for name in edge}
    nodes = tuple(node for name, node in steps.items() if name in joined)
    index = {node.name: i for i, node in enumerate(nodes)}
    edges = tuple((index[patch], index[below]) for patch, below in story.dependencies)
    apart = tuple(node for name, node in steps.items() if name not in joined)
    # A patch builds on earlier ones only, so there is no cycle to draw.
    return Graph(nodes, tuple(sorted(edge for edge in edges if edge[1] < edge[0])), apart)


def mermaid(graph: Graph) -> str:
    """Return the text of a mermaid diagram."""
    lines = ["graph BT"]
    for index, node in enumerate(graph.nodes):
        label = escape.mermaid(f"{node.id} {escape.shorten(node.title, 60)}")
        lines.append(f'  p{index}["{label}"]')
    lines += [f"  p{patch} --> p{below}" for patch, below in graph.edges]
    return "\n".join(lines) + "\n"


def dot(graph: Graph) -> str:
    """Return the text of a Graphviz graph."""
    lines = ["digraph series {", "  rankdir=BT;", "  node [shape=box];"]
    for index, node in enumerate(graph.nodes):
        lines.append(f"  p{index} [label={escape.dot(f'{node.id} {node.title}')}];")
    lines += [f"  p{patch} -> p{below};" for patch, below in graph.edges]
    return "\n".join([*lines, "}"]) + "\n"
