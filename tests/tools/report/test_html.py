# SPDX-License-Identifier: Apache-2.0
"""The HTML report: one file, every patch once, nothing in a title acts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxtree.rebase.model import Outcome
from mxtree.report.escape import one_line
from mxtree.report.render import to_html

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from .conftest import Kit

NASTY = (
    "<script>alert(1)</script>",
    "</td></tr></table>",
    '" onmouseover="alert(1)',
    "{{ report }} {% raw %}",
    "&lt;b&gt; &amp;",
    "a | b `c` *d*",
    "\u202egnp.exe\x1b[31m",
    "]]> --> <!--",
    "",
)


def test_the_skeleton(kit: Kit, snapshot: SnapshotAssertion) -> None:
    assert kit.read(to_html(kit.report(kit.story()))).outline() == snapshot


def test_every_patch_is_once_in_the_table(kit: Kit) -> None:
    page = kit.read(to_html(kit.report(kit.story())))
    (table,) = page.all("table", "patches")
    rows = [[cell.text for cell in row.all("td")] for row in table.all("tr") if row.all("td")]
    assert rows == [
        ["0001 One", "untouched", "context lines only"],
        ["0002 Two", "refreshed", "context lines only"],
        ["0003 Three", "merged upstream", "context lines only"],
        ["0004 Four", "conflict", "context lines only"],
    ]
    badges = [cell.classes for cell in table.all("span")]
    classes = ("untouched", "refreshed", "merged-upstream", "conflict")
    assert badges == [f"badge {name}" for name in classes]


def test_bases_and_counts(kit: Kit) -> None:
    page = kit.read(to_html(kit.report(kit.story())))
    (table,) = page.all("table", "bases")
    cells = [cell.text for cell in table.all("td")]
    for expected in ("1.0", "v1.0", "c" * 12, "2.0", "v2.0"):
        assert expected in cells
    assert f"index file thing-2.0.tar.gz, sha256 {'a' * 64}" in cells
    (total,) = page.all("p", "sum")
    assert total.text == ("4 patches = 1 untouched + 1 refreshed + 1 merged upstream + 1 conflict")
    numbers = list(map(int, re.findall(r"\d+", total.text)))
    assert numbers[0] == sum(numbers[1:])


def test_it_needs_no_network_and_no_script(kit: Kit) -> None:
    html = to_html(kit.report(kit.story(), kit.story(onto="3.0")))
    page = kit.read(html)
    assert not page.all("script")
    assert not page.all("link")
    assert not re.search(r"\s(src|href|action|data)=", html)
    assert not re.search(r"@import|url\((?!#arrow)", html)
    assert "default-src 'none'" in html


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_define_the_same_colours(kit: Kit, scheme: str) -> None:
    html = to_html(kit.report(kit.story()))
    light, dark = re.findall(r":root \{(.*?)\}", html, re.DOTALL)
    used = set(re.findall(r"var\((--[a-z-]+)\)", html)) - {"--tint", "--ink"}
    assert used <= set(re.findall(r"(--[a-z-]+):", {"light": light, "dark": dark}[scheme]))


def test_every_class_has_a_colour(kit: Kit) -> None:
    outcomes = [*Outcome, None]
    titles = [f"Patch {i}" for i in range(len(outcomes))]
    html = to_html(kit.report(kit.story(titles, outcomes)))
    for outcome in outcomes:
        css = (outcome or "waiting").replace(" ", "-")
        assert re.search(rf"\.{css}[ ,][^}}]*--tint", html)
        assert f'class="badge {css}"' in html


def test_the_graph_is_drawn_and_written(kit: Kit) -> None:
    page = kit.read(to_html(kit.report(kit.story())))
    (drawing,) = (svg for svg in page.all("svg") if svg.attributes.get("role") == "img")
    nodes = [g for g in drawing.all("g") if g.classes.startswith("node")]
    assert [node.all("tspan")[0].text for node in nodes] == ["0001", "0002", "0004"]
    assert len(drawing.all("path", "edge")) == 2
    mermaid, dot = (details.all("pre")[0].text for details in page.all("details"))
    assert mermaid.startswith("graph BT\n")
    assert "  p1 --> p0\n  p2 --> p1\n" in mermaid
    assert "p2 -> p1;" in dot
    assert "On their own: 0003." in page.text


def test_without_edges_or_beyond_the_limit_it_says_so(kit: Kit) -> None:
    alone = to_html(kit.report(kit.story(edges=())))
    assert "No patch builds on another one." in alone
    many = to_html(kit.report(kit.story([f"Patch {i}" for i in range(61)], edges=())))
    assert "not worked out" in many
    assert "No patch builds on another one." not in many


def test_the_range_diff_is_coloured(kit: Kit) -> None:
    (diff,) = kit.read(to_html(kit.report(kit.story()))).all("pre", "rangediff")
    lines = [(line.classes, line.text.strip("\n")) for line in diff.all("span")]
    assert ("pair same", "1:  7a33a9c = 1:  d77b004 One") in lines
    assert ("minus", "    - old") in lines
    assert ("removed", "     -removed") in lines
    assert ("plus added", "    ++FIVE") in lines
    assert diff.text.replace("\n\n", "\n").strip("\n").count("\n") == len(lines) - 1


def test_several_stories_have_a_matrix(kit: Kit) -> None:
    other = kit.story(outcomes=[Outcome.OFFSET], onto="3.0")
    page = kit.read(to_html(kit.report(kit.story(), other)))
    (matrix,) = page.all("table", "matrix")
    assert [head.text for head in matrix.all("thead")[0].all("th")] == ["patch", "2.0", "3.0"]
    body = [[c.text for c in row.children] for row in matrix.all("tbody")[0].all("tr")]
    assert body[0] == ["0001 One", "untouched", "offset"]
    assert [row[1:] for row in body[1:]] == [
        ["refreshed", "offset"],
        ["merged upstream", "offset"],
        ["conflict", "offset"],
    ]
    assert [h.text for h in page.all("h2")] == ["Patch by release", "1.0 → 2.0", "1.0 → 3.0"]


def test_a_rebase_that_stopped_says_where(kit: Kit) -> None:
    outcomes = (Outcome.UNTOUCHED, None, None, None)
    page = kit.read(to_html(kit.report(kit.story(outcomes=outcomes, status="conflict"))))
    (state,) = page.all("p", "state")
    assert state.text == "not done: conflict in 0002-Patch-2.patch; 1 of 4 patches are carried"
    assert "4 patches = 1 carried + 3 waiting" in page.text


def test_nothing_to_forecast_is_said(kit: Kit) -> None:
    page = kit.read(to_html(kit.report()))
    assert "No pinned release is newer" in page.text


@pytest.mark.parametrize("title", NASTY)
def test_a_title_is_text_and_nothing_else(kit: Kit, title: str) -> None:
    _check_inert(kit, title)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(title=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_title_is_text_and_nothing_else(kit: Kit, title: str) -> None:
    _check_inert(kit, title)


def _check_inert(kit: Kit, title: str) -> None:
    diff = "1:  7a33a9c ! 1:  d77b004 " + title.partition("\n")[0]
    plain = kit.story(["x", "y"], why="x", range_diff="1:  7a33a9c ! 1:  d77b004 x", edges=[(2, 1)])
    nasty = kit.story([title, "y"], why=title, range_diff=diff, edges=[(2, 1)])
    page = kit.read(to_html(kit.report(nasty)))
    assert page.outline() == kit.read(to_html(kit.report(plain))).outline()
    row = page.all("table", "patches")[0].all("tbody")[0].all("tr")[0]
    assert [one_line(cell.text) for cell in row.all("td")][0::2] == [
        f"0001 {one_line(title)}".strip(),
        one_line(title),
    ]
