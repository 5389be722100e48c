# SPDX-License-Identifier: Apache-2.0
"""The Markdown report, read back with a CommonMark parser that knows GitHub's tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from mxtree.rebase.model import Outcome
from mxtree.report import escape
from mxtree.report.render import MARKDOWN_LIMIT, cut, to_markdown

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from .conftest import Element, Kit

HIDDEN_BREAK = "\u200b"


def parse(kit: Kit, text: str) -> Element:
    markdown = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    return kit.read(markdown.render(text))


def rows(page: Element, table: int) -> list[list[str]]:
    body = page.all("table")[table].all("tbody")[0]
    return [
        [cell.text.replace(HIDDEN_BREAK, "") for cell in row.all("td")] for row in body.all("tr")
    ]


def test_the_skeleton(kit: Kit, snapshot: SnapshotAssertion) -> None:
    text = to_markdown(kit.report(kit.story()))
    marks = ("#", "|---", "| base", "| patch", "<details", "</details", "```", "\n")
    lines = [line for line in text.splitlines() if not line or line.startswith(marks)]
    assert "\n".join(lines) == snapshot
    assert parse(kit, text).outline() == snapshot


def test_values(kit: Kit) -> None:
    page = parse(kit, to_markdown(kit.report(kit.story())))
    assert rows(page, 0) == [
        ["from", "1.0", "v1.0", "c" * 12, "index"],
        ["onto", "2.0", "v2.0", "c" * 12, "index"],
    ]
    assert rows(page, 1) == [
        ["0001 One", "untouched", "context lines only"],
        ["0002 Two", "refreshed", "context lines only"],
        ["0003 Three", "merged upstream", "context lines only"],
        ["0004 Four", "conflict", "context lines only"],
    ]
    total = re.search(r"^(\d+) patches = (.*)$", to_markdown(kit.report(kit.story())), re.MULTILINE)
    assert total is not None
    assert int(total[1]) == sum(map(int, re.findall(r"\d+", total[2]))) == 4
    mermaid, diff = (code.text for code in page.all("code") if code.classes)
    assert 'p2["0004 Four"]' in mermaid
    assert diff.startswith("1:  7a33a9c = 1:  d77b004 One\n")


def test_several_stories_have_a_matrix(kit: Kit) -> None:
    other = kit.story(outcomes=[Outcome.OFFSET], onto="3.0")
    page = parse(kit, to_markdown(kit.report(kit.story(), other)))
    assert rows(page, 0)[1] == ["0002 Two", "refreshed", "offset"]
    assert [h.text for h in page.all("h3")] == ["1.0 → 2.0", "1.0 → 3.0"]
    assert len(page.all("table")) == 5


def test_a_fence_survives_backticks(kit: Kit) -> None:
    diff = "1:  7a33a9c ! 1:  d77b004 Docs\n    ++```\n````\n</details>\n    ++`````\n"
    page = parse(kit, to_markdown(kit.report(kit.story(range_diff=diff))))
    (code,) = page.all("code", "language-diff")
    assert code.text == diff
    assert len(page.all("details")) == 2


@pytest.mark.parametrize("stories", [1, 3])
def test_it_fits_into_a_pull_request(kit: Kit, stories: int) -> None:
    diff = "".join(f"    ++line {number}\n" for number in range(20_000))
    long = [kit.story(range_diff=diff, onto=f"{i}.0") for i in range(2, 2 + stories)]
    text = to_markdown(kit.report(*long))
    assert len(text) <= MARKDOWN_LIMIT
    assert len(text) > MARKDOWN_LIMIT // 2
    kept = [code.text.count("\n") for code in parse(kit, text).all("code", "language-diff")]
    told = [int(n) for n in re.findall(r"^(\d+) more lines do not fit", text, re.MULTILINE)]
    assert [a + b for a, b in zip(kept, told, strict=True)] == [20_000] * stories


def test_cut_keeps_whole_lines() -> None:
    assert cut("ab\ncd\n", 6) == ("ab\ncd", 0)
    assert cut("ab\ncd\n", 5) == ("ab", 1)
    assert cut("ab\ncd\n", 0) == ("", 2)


NASTY = (
    "a | b",
    "a \\| b \\",
    "<img src=x> & &amp; <!-- x",
    "`code` ``` **bold** _it_ ~~gone~~",
    "[link](https://evil.example) ![p](q)",
    "# heading",
    "fixes #12, see @octocat and https://example.org www.example.org",
    ":tada: $x$",
    "\u202egnp.exe\x00\x1b[31m",
    "| | |",
    "- item",
    "\\",
    "",
)


@pytest.mark.parametrize("title", NASTY)
def test_a_title_is_text_and_nothing_else(kit: Kit, title: str) -> None:
    _check_inert(kit, title)


@settings(deadline=None, max_examples=100)
@given(title=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_title_is_text_and_nothing_else(kit: Kit, title: str) -> None:
    _check_inert(kit, title)


@settings(deadline=None, max_examples=100)
@given(title=st.text(st.sampled_from("\\|`*_[]<>&#@!~$:;()x1 \n-="), max_size=24))
def test_any_heap_of_marks_is_text_and_nothing_else(kit: Kit, title: str) -> None:
    _check_inert(kit, title)


def _check_inert(kit: Kit, title: str) -> None:
    story = kit.story([title, "y"], why=title, range_diff="", edges=())
    page = parse(kit, to_markdown(kit.report(story)))
    plain = kit.story(["x", "y"], why="x", range_diff="", edges=())
    assert page.outline() == parse(kit, to_markdown(kit.report(plain))).outline()
    shown = escape.one_line(title).replace(HIDDEN_BREAK, "")
    first = [escape.one_line(cell) for cell in rows(page, 1)[0]]
    assert first == [f"0001 {shown}".strip(), "untouched", escape.one_line(shown)]


@pytest.mark.parametrize("text", ["@octocat", "#12", "GH-1 #3", "https://x.example", "WWW.x.org"])
def test_nothing_is_linked_by_github(text: str) -> None:
    assert re.search(r"[@#:wW]&#8203;", escape.markdown(text))


@pytest.mark.parametrize("text", ["a`b", "a|b", "a\\|b", "", "<b>"])
def test_code_of_any_text_stays_one_cell(kit: Kit, text: str) -> None:
    page = parse(kit, f"| a | b |\n|---|---|\n| {escape.code_span(text)} | x |\n")
    assert rows(page, 0) == [[text, "x"]]
    assert len(page.all("code")) == 1
