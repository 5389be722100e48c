# SPDX-License-Identifier: Apache-2.0
"""Drift over pinned releases: every kind of answer, on hand-made ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mxtree.drift.model import Event, Risk
from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from .conftest import Lab

BODY = "    one = 1\n    two = 2\n    three = 3\n    return one + two + three\n"
COUNT = f"def count():\n{BODY}"
OTHER = "def other():\n    return 0\n"
MODULE = f"{OTHER}\n\n{COUNT}\n\nLAST = 1\n"


def patched(text: str) -> str:
    return text.replace("three = 3", "three = 4")


def events(lab: Lab) -> list[tuple[str, Event, int, int, str]]:
    return [(c.at, c.event, c.added, c.removed, c.to) for c in lab.one().changes]


@pytest.fixture
def based(lab: Lab) -> Lab:
    """A patch on `pkg.mod.count`, no newer release yet."""
    lab.release("1.0", {"pkg/mod.py": MODULE, "pkg/__init__.py": "", "README": "a\nb\n"})
    lab.series(("pkg.mod.count", {"pkg/mod.py": patched(MODULE)}))
    return lab


def test_unchanged_although_the_file_changed(based: Lab) -> None:
    based.release("2.0", {"pkg/mod.py": "import os\n\n\n" + MODULE.replace("LAST = 1", "LAST = 2")})
    symbol = based.one()
    assert (symbol.kind, symbol.path, symbol.changes) == ("symbol", "pkg/mod.py", ())
    assert symbol.risk == Risk.NONE


def test_the_first_release_that_changed_it_is_first(based: Lab) -> None:
    based.release("2.0", {"README": "c\n"})
    changed = MODULE.replace("two = 2", "two = 22\n    more = 1")
    based.release("3.0", {"pkg/mod.py": changed})
    based.release("10.0", {"pkg/mod.py": changed.replace("    one = 1\n", "")})
    assert events(based) == [
        ("3.0", Event.CHANGED, 2, 1, ""),
        ("10.0", Event.CHANGED, 0, 1, ""),
    ]
    assert based.drift().over == ("2.0", "3.0", "10.0")
    assert based.drift(onto="3.0").over == ("2.0", "3.0")
    assert len(based.one(onto="v3.0").changes) == 1
    assert based.one(onto="2.0").changes == ()


def test_vanished_and_returned(based: Lab) -> None:
    based.release("2.0", {"pkg/mod.py": OTHER})
    based.release("3.0", {"pkg/mod.py": MODULE})
    assert events(based) == [
        ("2.0", Event.VANISHED, 0, 5, ""),
        ("3.0", Event.RETURNED, 5, 0, ""),
    ]
    assert based.one().risk == Risk.HIGH


def test_a_renamed_file_takes_its_symbols_along(based: Lab) -> None:
    based.release("2.0", {"pkg/mod.py": None, "pkg/new.py": MODULE})
    based.release("3.0", {"pkg/new.py": MODULE.replace("two = 2", "two = 3")})
    assert events(based) == [
        ("2.0", Event.MOVED, 0, 0, "pkg.new.count"),
        ("3.0", Event.CHANGED, 1, 1, ""),
    ]
    assert based.one().changes[1].symbol == "pkg.new.count"


def test_a_symbol_moved_to_another_module_by_itself(based: Lab) -> None:
    moved = {"pkg/mod.py": OTHER + "\n\nfrom pkg.new import count\n", "pkg/new.py": patched(COUNT)}
    based.release("2.0", moved)
    assert events(based) == [("2.0", Event.MOVED, 1, 1, "pkg.new.count")]


def test_a_namesake_with_other_content_is_not_where_it_moved(based: Lab) -> None:
    namesake = "def count():\n    raise ValueError\n"
    based.release("2.0", {"pkg/mod.py": OTHER, "pkg/new.py": namesake})
    assert events(based) == [("2.0", Event.VANISHED, 0, 5, "")]


def test_a_namesake_that_was_there_before_is_not_where_it_moved(lab: Lab) -> None:
    lab.release("1.0", {"pkg/mod.py": MODULE, "pkg/twin.py": COUNT})
    lab.series(("pkg.mod.count", {"pkg/mod.py": patched(MODULE)}))
    lab.release("2.0", {"pkg/mod.py": OTHER})
    assert events(lab) == [("2.0", Event.VANISHED, 0, 5, "")]


@pytest.mark.parametrize(
    ("kept", "event"),
    [
        ("from pkg.new import FLAG\n", Event.MOVED),
        ("from .new import FLAG\n", Event.MOVED),
        ("from pkg.other import FLAG\n", Event.VANISHED),
        ("import pkg.new\n", Event.VANISHED),
    ],
)
def test_one_line_moved_only_when_the_old_module_imports_it(
    lab: Lab, kept: str, event: Event
) -> None:
    lab.release("1.0", {"pkg/mod.py": "FLAG = False\nX = 1\n"})
    lab.series(("pkg.mod.FLAG", {"pkg/mod.py": "FLAG = True\nX = 1\n"}))
    lab.release("2.0", {"pkg/mod.py": kept + "X = 1\n", "pkg/new.py": "FLAG = False\n"})
    assert [change.event for change in lab.one().changes] == [event]


CLASS = """
class Thing:
    def __init__(self):
        self.a = 1
        self.b = 2

    def size(self):
        return self.a + self.b

    def name(self):
        return "thing"
"""


def test_a_method_follows_its_class(lab: Lab) -> None:
    lab.release("1.0", {"pkg/mod.py": CLASS, "pkg/rest.py": "class Rest:\n    pass\n"})
    patch = {"pkg/mod.py": CLASS.replace("self.b = 2", "self.b = 3")}
    lab.series(("pkg.mod.Thing.__init__", patch))
    lab.release("2.0", {"pkg/mod.py": "X = 1\n", "pkg/rest.py": "import os\n\n\n" + CLASS.lstrip()})
    assert events(lab) == [("2.0", Event.MOVED, 0, 0, "pkg.rest.Thing.__init__")]


def test_a_method_that_only_its_class_lost_has_vanished(lab: Lab) -> None:
    lab.release("1.0", {"pkg/mod.py": CLASS})
    lab.series(("pkg.mod.Thing.__init__", {"pkg/mod.py": CLASS.replace("b = 2", "b = 3")}))
    gone = "class Thing:\n    def size(self):\n        return 1\n\n\nclass Other:\n"
    lab.release("2.0", {"pkg/mod.py": gone + "    def __init__(self):\n        self.a = 1\n"})
    assert events(lab) == [("2.0", Event.VANISHED, 0, 3, "")]


def test_ours_is_judged_by_its_neighbours(lab: Lab) -> None:
    lab.release("1.0", {"pkg/mod.py": MODULE})
    new = MODULE.replace("def count", "def ours():\n    pass\n\n\ndef count")
    lab.series(("pkg.mod.ours", {"pkg/mod.py": new}))
    lab.release("2.0", {"pkg/mod.py": MODULE.replace("LAST = 1", "LAST = 2")})
    lab.release("3.0", {"pkg/mod.py": MODULE.replace("return 0", "return 1")})
    symbol = lab.one()
    assert (symbol.kind, symbol.compared) == ("ours", ("pkg.mod.other", "pkg.mod.count"))
    (change,) = symbol.changes
    assert (change.at, change.symbol, change.event) == ("3.0", "pkg.mod.other", Event.CHANGED)
    assert symbol.risk == Risk.LOW


@pytest.mark.parametrize(
    ("added", "changes", "compared"),
    [
        ("class New:\n    def go(self):\n        pass\n", "pkg.mod.New.go", ("pkg.mod.LAST",)),
        ("    def extra(self):\n        pass\n", "pkg.mod.Thing.extra", ("pkg.mod.Thing.name",)),
        ("        inner = 1\n", "pkg.mod.Thing.name.inner", ("pkg.mod.Thing.name",)),
    ],
)
def test_what_stands_beside_ours(
    lab: Lab, added: str, changes: str, compared: tuple[str, ...]
) -> None:
    base = CLASS if added.startswith(" ") else CLASS + "LAST = 1\n"
    lab.release("1.0", {"pkg/mod.py": base})
    lab.series((changes, {"pkg/mod.py": base + added}))
    lab.release("2.0", {"pkg/mod.py": base.replace('"thing"', '"other"')})
    symbol = lab.one()
    assert (symbol.kind, symbol.compared) == ("ours", compared)
    assert bool(symbol.changes) == ("name" in compared[0])


def test_ours_collides_when_upstream_adds_the_same_name(lab: Lab) -> None:
    lab.release("1.0", {"pkg/mod.py": MODULE})
    lab.series(
        ("pkg.mod.ours", {"pkg/mod.py": MODULE + "\n\ndef ours():\n    return 1\n"}),
        ("pkg/new.txt", {"pkg/new.txt": "ours\n"}),
        ("pkg.fresh.f", {"pkg/fresh.py": "def f(): pass\n"}),
    )
    theirs = MODULE + "\n\ndef ours():\n    x = 1\n    return x\n"
    lab.release("2.0", {"pkg/mod.py": theirs, "pkg/new.txt": "theirs\n"})
    first, second, third = (patch.symbols[0] for patch in lab.drift().patches)
    assert [(c.at, c.event, c.added) for c in first.changes] == [("2.0", Event.COLLIDES, 3)]
    assert [c.event for c in second.changes] == [Event.COLLIDES]
    assert (third.kind, third.compared, third.changes) == ("ours", (), ())
    assert (first.risk, second.risk, third.risk) == (Risk.HIGH, Risk.HIGH, Risk.NONE)


def test_a_symbol_that_an_earlier_patch_adds_is_ours_too(lab: Lab) -> None:
    lab.release("1.0", {"m.py": MODULE})
    first = MODULE + "\n\ndef ours():\n    return 1\n"
    second = first.replace("return 1\n", "return 2\n")
    lab.series(("m.ours", {"m.py": first}), ("m.ours", {"m.py": second}))
    lab.release("2.0", {"m.py": MODULE})
    assert [patch.symbols[0].kind for patch in lab.drift().patches] == ["ours", "ours"]


def test_paths_are_compared_as_files(lab: Lab) -> None:
    lab.release("1.0", {"csrc/k.cu": "a\nb\n", "setup.py": "x = 1\n", "my file.txt": "a\n"})
    changed = {"csrc/k.cu": "a\nc\n", "setup.py": "x = 2\n", "my file.txt": "b\n"}
    lab.series(("csrc/k.cu, setup.py", changed))
    lab.release("2.0", {"csrc/k.cu": "a\nb\nd\n", "setup.py": "x = 1\n"})
    kernel, setup = lab.drift().patches[0].symbols
    assert (kernel.kind, kernel.note) == ("file", "")
    assert [(c.at, c.added, c.removed) for c in kernel.changes] == [("2.0", 1, 0)]
    assert (setup.kind, setup.changes) == ("file", ())


def test_without_the_field_the_touched_files_count(lab: Lab) -> None:
    lab.release("1.0", {"a.txt": "a\n", "b.txt": "b\n"})
    lab.series(("", {"a.txt": "A\n", "new.txt": "n\n"}))
    lab.release("2.0", {"a.txt": None, "c/a.txt": "a\n"})
    old, new = lab.drift().patches[0].symbols
    assert [(c.event, c.to) for c in old.changes] == [(Event.MOVED, "c/a.txt")]
    assert (new.name, new.kind, new.changes) == ("new.txt", "ours", ())


def test_a_name_that_is_nowhere_is_unknown(based: Lab) -> None:
    path = next(based.project.series_dir("thing", "1.0").glob("*.patch"))
    path.write_bytes(path.read_bytes().replace(b"pkg.mod.count", b"pkg.mod.typo"))
    based.release("2.0", {"README": "c\n"})
    symbol = based.one()
    assert (symbol.kind, symbol.risk) == ("unknown", Risk.LOW)
    assert "Changes:" in symbol.note


def test_source_of_another_python_is_said_and_not_guessed(based: Lab) -> None:
    based.release("2.0", {"pkg/mod.py": "def count(:\n"})
    based.release("3.0", {"pkg/mod.py": MODULE.replace("one = 1", "one = 0")})
    symbol = based.one()
    assert [(c.at, c.event) for c in symbol.changes] == [("3.0", Event.CHANGED)]
    assert symbol.note == "cannot be parsed at 2.0"


def test_a_base_that_cannot_be_parsed_is_compared_whole(lab: Lab) -> None:
    lab.release("1.0", {"m.py": "print 'two'\n"})
    lab.series(("m.count", {"m.py": "print 'too'\n"}))
    lab.release("2.0", {"m.py": "print 'three'\n"})
    symbol = lab.one()
    assert (symbol.kind, len(symbol.changes)) == ("file", 1)
    assert "whole file" in symbol.note


def test_the_longest_module_wins_and_src_is_found(lab: Lab) -> None:
    files = {"src/pkg/__init__.py": "def mod():\n    return 1\n", "src/pkg/mod.py": MODULE}
    lab.release("1.0", files)
    lab.series(
        ("pkg.mod.count", {"src/pkg/mod.py": patched(MODULE)}),
        ("pkg.mod", {"src/pkg/mod.py": MODULE}),
    )
    lab.release("2.0", {"src/pkg/mod.py": MODULE.replace("LAST = 1", "LAST = 2")})
    first, second = (patch.symbols[0] for patch in lab.drift().patches)
    assert (first.kind, first.path, first.changes) == ("symbol", "src/pkg/mod.py", ())
    assert (second.kind, second.path, len(second.changes)) == ("file", "src/pkg/mod.py", 1)


def test_the_summary_begins_with_what_hurts_most(lab: Lab) -> None:
    files = {f"m{i}.py": MODULE for i in range(5)}
    lab.release("1.0", files)
    lab.series(*((f"m{i}.count", {f"m{i}.py": patched(MODULE)}) for i in range(5)))
    lab.release(
        "2.0",
        {
            "m1.py": MODULE.replace("one = 1", "one = 2"),
            "m2.py": OTHER,
            "m3.py": MODULE.replace(BODY, "    return 9\n"),
        },
    )
    drift = lab.drift()
    assert [(p.name[:4], p.risk) for p in drift.by_risk()] == [
        ("0003", "high"),
        ("0004", "changed"),
        ("0002", "changed"),
        ("0001", "none"),
        ("0005", "none"),
    ]


def test_no_newer_release_and_no_series(based: Lab) -> None:
    assert "no pinned release is newer" in based.drift().problem


@pytest.mark.parametrize(
    ("onto", "message"),
    [("1.5", "is not pinned"), ("1.0", "is on 1.0 already"), ("0.9", "is older than 1.0")],
)
def test_a_wrong_goal_is_refused(based: Lab, onto: str, message: str) -> None:
    based.release("0.9", {"README": "old\n"})
    based.release("2.0", {"README": "c\n"})
    with pytest.raises(FatalError, match=message) as caught:
        based.drift(onto=onto)
    assert caught.value.code == ExitCode.USAGE
