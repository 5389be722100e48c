# SPDX-License-Identifier: Apache-2.0
"""Dotted names in Python source."""

from __future__ import annotations

import textwrap

import pytest

from mxtree.drift.definitions import Module, Name, dedented

SOURCE = '''
import os

LIMIT: int = 3
a, (b, *c) = range(3), [4]
LIMIT += 1

if os.name == "nt":
    def place():
        return "nt"
else:
    def place():
        return "posix"


@first
@second(
    1,
)
class Thing:
    """A thing."""

    size: int = 1

    @property
    def width(self):
        return 1

    @width.setter
    def width(self, value):
        def check():
            return value
        check()

    try:
        import fast
    except ImportError:
        fast = None
        slow = True


match os.name:
    case "posix":
        sep = "/"
'''


def find(*name: str) -> str | None:
    lines = Module.parse(textwrap.dedent(SOURCE).encode()).find(name)
    return None if lines is None else "\n".join(lines)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (("LIMIT",), "LIMIT: int = 3\nLIMIT += 1"),
        (("a",), "a, (b, *c) = range(3), [4]"),
        (("c",), "a, (b, *c) = range(3), [4]"),
        (("sep",), '        sep = "/"'),
        (
            ("place",),
            '    def place():\n        return "nt"\n    def place():\n        return "posix"',
        ),
        (("Thing", "size"), "    size: int = 1"),
        (("Thing", "fast"), "        fast = None"),
        (("Thing", "slow"), "        slow = True"),
        (("Thing", "width", "check"), "        def check():\n            return value"),
        (("Thing", "absent"), None),
        (("size",), None),
        (("os",), None),
    ],
)
def test_a_name_is_found_with_its_lines(name: Name, expected: str | None) -> None:
    assert find(*name) == expected


def test_decorators_belong_to_a_definition_and_property_parts_to_each_other() -> None:
    assert (find("Thing") or "").startswith("@first\n@second(\n    1,\n)\nclass Thing:")
    width = find("Thing", "width") or ""
    assert width.count("def width") == 2
    assert width.startswith("    @property")


def test_the_empty_name_is_the_file() -> None:
    assert Module.parse(b"a\nb").find(()) == ["a", "b"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_form_feeds_do_not_move_lines(end: str) -> None:
    source = end.join(["\x0cx = 1", "text = 'a\x85b\u2028c'", "def f():", "    pass", "y = 2", ""])
    module = Module.parse(source.encode())
    assert module.find(("f",)) == ["def f():", "    pass"]
    assert module.find(("y",)) == ["y = 2"]


@pytest.mark.parametrize(
    "data",
    [b"def f(:\n", b"print 'two'\n", b"\0", b"x = " + b"(" * 3000 + b")" * 3000, b"\xff\xfe("],
)
def test_a_file_that_is_no_python_has_lines_and_no_names(data: bytes) -> None:
    module = Module.parse(data)
    assert module.spans is None
    assert module.names == ()
    assert module.find(("f",)) is None
    assert module.find(()) is not None


def test_a_byte_order_mark_and_an_invalid_escape_are_fine() -> None:
    assert Module.parse(b"\xef\xbb\xbfx = '\\d'\n").find(("x",)) == ["x = '\\d'"]


def test_neighbours_are_those_of_the_scope_the_nearest_first() -> None:
    module = Module.parse(b"a = 1\nclass B:\n    x = 1\nc = 1\nd = 1\ne = 1\n")
    assert module.neighbours(("c",)) == ([("B",), ("a",)], [("d",), ("e",)])
    assert module.neighbours(("B", "x")) == ([], [])
    assert module.neighbours(("absent",)) == ([], [])


def test_dedent_takes_the_first_lines_indentation_only() -> None:
    assert dedented(["  a", "    b", "text", ""]) == ["a", "  b", "text", ""]
    assert dedented([]) == []
