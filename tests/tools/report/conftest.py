# SPDX-License-Identifier: Apache-2.0
"""Reports to render, and a reader of the HTML that comes out."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Protocol

import pytest

from mxtree.rebase.model import End, Outcome, Rebase, Step
from mxtree.rebase.story import Report, Story

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path

_VOID = frozenset({"meta", "br", "hr", "link", "input", "img"})

RANGE_DIFF = """\
1:  7a33a9c = 1:  d77b004 One
2:  8a33a9c ! 2:  e77b004 Two
    @@ a.py
     @@
      context
    - old
    + new
     -removed
    -+five
    ++FIVE
3:  9a33a9c < -:  ------- Three
-:  ------- > 3:  ffffff1 Four
"""


def end(version: str) -> End:
    source = {"kind": "index", "file": f"thing-{version}.tar.gz", "sha256": "a" * 64}
    return End(version=version, tag=f"v{version}", source=source, commit="c" * 40, tree="d" * 40)


def story(
    titles: Sequence[str] = ("One", "Two", "Three", "Four"),
    outcomes: Sequence[Outcome | None] = (
        Outcome.UNTOUCHED,
        Outcome.REFRESHED,
        Outcome.MERGED,
        Outcome.CONFLICT,
    ),
    *,
    onto: str = "2.0",
    status: str = "done",
    range_diff: str = RANGE_DIFF,
    edges: Sequence[tuple[int, int]] = ((2, 1), (4, 2)),
    why: str = "context lines only",
) -> Story:
    """Return a story of one patch a title; ``edges`` count patches from 1."""
    steps = tuple(
        Step(
            name=f"{number:04}-Patch-{number}.patch",
            title=title,
            old_commit=f"{number:040x}",
            outcome=outcomes[(number - 1) % len(outcomes)],
            evidence=why,
        )
        for number, title in enumerate(titles, 1)
    )
    rebase = Rebase.model_validate(
        {
            "upstream": "thing",
            "old": end("1.0"),
            "new": end(onto),
            "series": "",
            "steps": steps,
            "tip": "e" * 40,
            "status": status,
        }
    )
    names = tuple((steps[a - 1].name, steps[b - 1].name) for a, b in edges)
    return Story(rebase=rebase, range_diff=range_diff, dependencies=names)


def report(*stories: Story) -> Report:
    return Report(kind="forecast", upstream="thing", stories=stories)


class Runner(Protocol):
    """The command line in a process of its own; see the fixture `mxtree`."""

    def __call__(self, *args: str | Path) -> subprocess.CompletedProcess[str]: ...


@dataclass
class Element:
    """A tag with its class, its text (that of its children included) and its children."""

    tag: str
    classes: str = ""
    text: str = ""
    children: list[Element] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)

    def all(self, tag: str, classes: str | None = None) -> list[Element]:
        """Return every element below with a tag (and exactly these classes), in order."""
        found = []
        for child in self.children:
            if child.tag == tag and classes in {None, child.classes}:
                found.append(child)
            found += child.all(tag, classes)
        return found

    def outline(self, depth: int = 0) -> str:
        """Return the tags and classes, indented, without any text."""
        name = f"{self.tag}.{self.classes.replace(' ', '.')}" if self.classes else self.tag
        return "  " * depth + name + "\n" + "".join(c.outline(depth + 1) for c in self.children)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.stack = [Element("document")]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        element = Element(tag, given.get("class", ""), attributes=given)
        self.stack[-1].children.append(element)
        if tag not in _VOID:
            self.stack.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.stack.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.stack[-1].tag == tag, f"</{tag}> closes <{self.stack[-1].tag}>"
        self.stack.pop()

    def handle_data(self, data: str) -> None:
        for element in self.stack:
            element.text += data


def read(html: str) -> Element:
    """Parse HTML; every element must be closed in order."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert [element.tag for element in reader.stack] == ["document"]
    return reader.stack[0]


@dataclass(frozen=True)
class Kit:
    """What the tests of this folder share."""

    story = staticmethod(story)
    report = staticmethod(report)
    read = staticmethod(read)


@pytest.fixture(scope="session")
def kit() -> Kit:
    return Kit()
