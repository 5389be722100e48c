# SPDX-License-Identifier: Apache-2.0
"""Drift over the commits of a git repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mxtree.drift.model import Event
from mxtree.drift.survey import survey
from mxtree.errors import FatalError
from mxtree.git import git
from mxtree.upstreams import Source

if TYPE_CHECKING:
    from .conftest import Lab

MODULE = "def count():\n    one = 1\n    two = 2\n    three = 3\n    return one\n\n\nLAST = 1\n"
PATCHED = MODULE.replace("three = 3", "three = 4")


@pytest.fixture
def based(lab: Lab) -> Lab:
    lab.release("1.0", {"pkg/mod.py": MODULE})
    lab.series(("pkg.mod.count", {"pkg/mod.py": PATCHED}))
    return lab


def events(lab: Lab, onto: str | None = None) -> list[tuple[str, Event, int, int]]:
    changes = lab.one(from_git=True, onto=onto).changes
    return [(c.at.split(" ", 2)[2], c.event, c.added, c.removed) for c in changes]


def test_the_commits_that_changed_it_are_named_in_order(based: Lab) -> None:
    text = MODULE.replace("LAST = 1", "LAST = 2")
    based.commit({"pkg/mod.py": text}, "Beside it")
    text = text.replace("one = 1", "one = 11")
    first = based.commit({"pkg/mod.py": text}, "Touch one")
    git("tag", "half", cwd=based.upstream)
    based.commit({"x": "x\n"}, "Elsewhere")
    based.commit({"pkg/mod.py": text.replace("two = 2\n", "two = 2\n    more = 1\n")}, "Add more")
    assert events(based) == [
        ("Touch one", Event.CHANGED, 1, 1),
        ("Add more", Event.CHANGED, 1, 0),
    ]
    assert based.one(from_git=True).changes[0].at.startswith(f"{first[:12]} 2023-11-14 ")
    assert events(based, onto="half") == [("Touch one", Event.CHANGED, 1, 1)]
    assert based.drift(from_git=True).over == ("1.0..HEAD (4 commits)",)


def test_a_rename_is_followed(based: Lab) -> None:
    based.commit({"pkg/mod.py": None, "lib/new.py": MODULE}, "Rename")
    based.commit({"lib/new.py": MODULE.replace("two = 2", "two = 3")}, "Touch two")
    assert events(based) == [("Rename", Event.MOVED, 0, 0), ("Touch two", Event.CHANGED, 1, 1)]


def test_a_merge_is_one_change(based: Lab) -> None:
    git("checkout", "--quiet", "-b", "side", cwd=based.upstream)
    based.commit({"pkg/mod.py": MODULE.replace("one = 1", "one = 5")}, "Side 1")
    based.commit({"pkg/mod.py": MODULE.replace("one = 1", "one = 6")}, "Side 2")
    git("checkout", "--quiet", "main", cwd=based.upstream)
    based.commit({"x": "x\n"}, "Main")
    git("merge", "--quiet", "--no-ff", "-m", "Merge side", "side", cwd=based.upstream)
    assert events(based) == [("Merge side", Event.CHANGED, 1, 1)]


def test_what_the_release_branch_took_over_is_no_drift(lab: Lab) -> None:
    root = lab.commit({"pkg/mod.py": MODULE}, "Root")
    fixed = MODULE.replace("one = 1", "one = 11")
    lab.commit({"pkg/mod.py": fixed}, "Fix one")
    lab.commit({"pkg/mod.py": fixed.replace("two = 2", "two = 22")}, "Touch two")
    git("checkout", "--quiet", "-b", "release", root, cwd=lab.upstream)
    lab.release("1.0", {"pkg/mod.py": fixed})
    lab.series(("pkg.mod.count", {"pkg/mod.py": fixed.replace("three = 3", "three = 4")}))
    git("checkout", "--quiet", "main", cwd=lab.upstream)
    assert events(lab) == [("Touch two", Event.CHANGED, 1, 1)]


def test_a_symbol_that_the_release_branch_got_first(lab: Lab) -> None:
    root = lab.commit({"pkg/mod.py": "LAST = 1\n"}, "Root")
    lab.commit({"pkg/mod.py": MODULE.replace("one = 1", "one = 2")}, "Add count")
    git("checkout", "--quiet", "-b", "release", root, cwd=lab.upstream)
    lab.release("1.0", {"pkg/mod.py": MODULE})
    lab.series(("pkg.mod.count", {"pkg/mod.py": PATCHED}))
    git("checkout", "--quiet", "main", cwd=lab.upstream)
    assert events(lab) == [("Add count", Event.CHANGED, 1, 1)]


def test_nothing_is_written(based: Lab) -> None:
    based.commit({"pkg/mod.py": MODULE.replace("one = 1", "one = 2")})
    before = sorted(path for path in based.upstream.rglob("*"))
    project = sorted(path for path in based.project.root.rglob("*"))
    based.drift(from_git=True)
    assert sorted(path for path in based.upstream.rglob("*")) == before
    assert sorted(path for path in based.project.root.rglob("*")) == project


@pytest.mark.parametrize(
    ("onto", "message"),
    [("nowhere", "has no revision 'nowhere'"), ("early", "is older than 1.0")],
)
def test_a_wrong_goal_is_refused(lab: Lab, onto: str, message: str) -> None:
    lab.commit({"a": "a\n"})
    git("tag", "early", cwd=lab.upstream)
    lab.release("1.0", {"pkg/mod.py": MODULE})
    lab.series(("pkg.mod.count", {"pkg/mod.py": PATCHED}))
    with pytest.raises(FatalError, match=message):
        lab.drift(from_git=True, onto=onto)


def test_a_branch_without_common_history_is_refused(based: Lab) -> None:
    git("checkout", "--quiet", "--orphan", "alone", cwd=based.upstream)
    based.commit({"pkg/mod.py": MODULE}, "Alone")
    with pytest.raises(FatalError, match="no history that joins") as caught:
        based.drift(from_git=True)
    assert "--unshallow" in (caught.value.hint or "")


@pytest.mark.parametrize("source", ["git", "git:https://example.invalid/x.git", "dir:."])
def test_a_source_without_history_is_refused(based: Lab, source: str) -> None:
    with pytest.raises(FatalError, match="no history to look at"):
        survey(based.project, ["thing"], Source.parse(source), None)
