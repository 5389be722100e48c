# SPDX-License-Identifier: Apache-2.0
"""The dependency graph: its text, and where boxes and lines are drawn."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from mxtree.report import graph
from mxtree.report.drawing import draw
from mxtree.report.layout import BOX_HEIGHT, BOX_WIDTH, lay_out

if TYPE_CHECKING:
    from .conftest import Kit


def test_text_is_quoted(kit: Kit) -> None:
    title = 'Say "x" \\ `y` <b>#1; end]'
    made = graph.graph_of(kit.story([title, "Two"], edges=[(2, 1)]))
    assert graph.mermaid(made) == (
        'graph BT\n  p0["0001 Say #34;x#34; #92; #96;y#96; #60;b#62;#35;1#59; end#93;"]\n'
        '  p1["0002 Two"]\n  p1 --> p0\n'
    )
    assert 'p0 [label="0001 Say \\"x\\" \\\\ `y` <b>#1; end]"];' in graph.dot(made)


def test_patches_without_an_edge_stand_apart(kit: Kit) -> None:
    made = graph.graph_of(kit.story())
    assert [node.id for node in made.nodes] == ["0001", "0002", "0004"]
    assert [node.id for node in made.apart] == ["0003"]
    assert made.edges == ((1, 0), (2, 1))


def test_an_empty_graph_has_no_size() -> None:
    layout = lay_out(0, [])
    assert (layout.width, layout.height, layout.boxes, layout.lines) == (0, 0, (), ())


def test_a_chain_is_a_column(kit: Kit) -> None:
    layout = lay_out(4, [(1, 0), (2, 1), (3, 2)])
    assert len({x for x, _ in layout.boxes}) == 1
    lines = draw(graph.graph_of(kit.story(edges=[(2, 1), (3, 2)]))).lines
    assert all("C" not in line for line in lines)


def test_crossings_are_avoided() -> None:
    layout = lay_out(4, [(2, 1), (3, 0)])
    (x0, _), (x1, _), (x2, _), (x3, _) = layout.boxes
    assert (x0 < x1) == (x3 < x2)
    both = lay_out(5, [(2, 0), (2, 1), (3, 1), (4, 0)])
    place = [x for x, _ in both.boxes]
    assert (place[0] < place[1]) == (place[4] < place[2]) == (place[2] < place[3])


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    count = draw(st.integers(1, 16))
    pairs = [(high, low) for low, high in combinations(range(count), 2)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=30)) if pairs else []
    return count, edges


@settings(deadline=None, max_examples=60)
@given(graphs())
def test_nothing_overlaps_and_everything_is_inside(case: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = case
    layout = lay_out(count, edges)
    assert len(layout.boxes) == count
    for x, y in layout.boxes:
        assert 0 <= x <= layout.width - BOX_WIDTH
        assert 0 <= y <= layout.height - BOX_HEIGHT
    for (x1, y1), (x2, y2) in combinations(layout.boxes, 2):
        assert abs(x1 - x2) >= BOX_WIDTH or abs(y1 - y2) >= BOX_HEIGHT
    for (high, low), line in zip(edges, layout.lines, strict=True):
        (sx, sy), (tx, ty) = layout.boxes[high], layout.boxes[low]
        assert sy > ty
        assert line[0] == (sx + BOX_WIDTH // 2, sy)
        assert line[-1] == (tx + BOX_WIDTH // 2, ty + BOX_HEIGHT)
        assert list(line) == sorted(line, key=lambda point: -point[1])
        for x, y in line[1:-1]:
            assert 0 <= x <= layout.width
            assert not any(
                bx < x < bx + BOX_WIDTH and by < y < by + BOX_HEIGHT for bx, by in layout.boxes
            )
