# SPDX-License-Identifier: Apache-2.0
"""Parsing diffs: what git writes, and what is left to git."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from mxtree.series.diff import Change, DamagedDiffError, UnusualDiffError, parse_diff

INDEX = b"index %s..%s" % (b"1" * 40, b"2" * 40)
HUNK = b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
FILE = b"diff --git a/x b/x\n" + INDEX + b" 100644\n--- a/x\n+++ b/x\n"


class Row(NamedTuple):
    """What a section should say."""

    change: Change
    old: bytes
    new: bytes


SECTIONS = {
    b"diff --git a/x b/x\nold mode 100644\nnew mode 100755\n": Row(Change.MODIFY, b"x", b"x"),
    b"diff --git a/a b/x b/a b/x\ndeleted file mode 100644\n": Row(
        Change.DELETE, b"a b/x", b"a b/x"
    ),
    b'diff --git "a/t\\tb" "b/t\\tb"\nnew file mode 100644\n': Row(Change.ADD, b"t\tb", b"t\tb"),
    b"diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n": Row(
        Change.RENAME, b"x", b"y"
    ),
    b'diff --git a/x "b/\\303\\251"\ncopy from x\ncopy to "\\303\\251"\n': Row(
        Change.COPY, b"x", b"\xc3\xa9"
    ),
    b"diff --git a/a b b/a b\n" + INDEX + b" 100644\n--- a/a b\t\n+++ b/a b\t\n" + HUNK: Row(
        Change.MODIFY, b"a b", b"a b"
    ),
}


@pytest.mark.parametrize("text", SECTIONS)
def test_names_and_kinds(text: bytes) -> None:
    (section,) = parse_diff(text)
    assert Row(section.change, section.old_path, section.new_path) == SECTIONS[text]


def test_a_hunk_keeps_its_lines_byte_for_byte() -> None:
    text = (
        b"@@ -2,4 +2,4 @@ def f():\n\n-\xff\x0c\r\n+\r\n \x1c y\n-z\n"
        b"\\ No newline at end of file\n+z\n"
    )
    (section,) = parse_diff(FILE + text, first_line=20)
    (hunk,) = section.hunks
    assert (hunk.line, hunk.old_start, hunk.new_start) == (24, 2, 2)
    assert hunk.old == [b"\n", b"\xff\x0c\r\n", b"\x1c y\n", b"z"]
    assert hunk.new == [b"\n", b"\r\n", b"\x1c y\n", b"z\n"]
    assert (hunk.leading, hunk.trailing) == (1, 0)


def test_a_signature_behind_the_last_hunk_is_no_line_of_it() -> None:
    assert len(parse_diff(FILE + HUNK + b"-- \n2.39.5\n\n")) == 1


UNUSUAL = {
    "another prefix": FILE.replace(b"a/x", b"c/x") + HUNK,
    "names that differ": FILE.replace(b"+++ b/x", b"+++ b/y") + HUNK,
    "no +++ line": FILE.replace(b"+++ b/x\n", b"") + HUNK,
    "no names": FILE.partition(b"---")[0] + HUNK,
    "no hunk": FILE,
    "nothing": b"diff --git a/x b/x\n" + INDEX + b"\n",
    "short hunk": FILE + HUNK.replace(b"-1,2", b"-1,3"),
    "end in the hunk": FILE + HUNK[:-3],
    "counts that do not meet": FILE + b"@@ -1,2 +1,1 @@\n a\n+b\n+c\n",
    "no change": FILE + b"@@ -1 +1 @@\n a\n",
    "malformed @@": FILE + HUNK.replace(b"@@ -1,2 +1,2 @@", b"@@ -1,2 +1,2"),
    "another remark": FILE + HUNK + b"\\ Kein Zeilenumbruch am Dateiende.\n",
    "line end in the middle": FILE + b"@@ -1,2 +1 @@\n-a\n\\ No newline at end of file\n-b\n+c\n",
    "traditional": b"--- a/x\n+++ b/x\n" + HUNK,
    "junk that looks like a hunk": b"@@ -1 +1 @@\n" + FILE + HUNK,
    "binary without data": FILE.partition(b"---")[0] + b"Binary files a/x and b/x differ\n",
    "submodule": b"diff --git a/x b/x\nnew file mode 160000\n",
    "mode of old": b"diff --git a/x b/x\nnew file mode 100664\n",
    "half a mode change": b"diff --git a/x b/x\nold mode 100644\n",
    "half a rename": b"diff --git a/x b/y\nrename from x\n",
    "half a copy": b"diff --git a/x b/y\ncopy to y\n",
    "two kinds": b"diff --git a/x b/x\nnew file mode 100644\ndeleted file mode 100644\n",
    "a line twice": b"diff --git a/x b/x\nnew file mode 100644\nnew file mode 100644\n",
    "bad index": FILE.replace(INDEX, b"index 123..456") + HUNK,
    "new file with an old name": b"diff --git a/x b/x\nnew file mode 100644\n--- a/x\n+++ b/x\n"
    + HUNK,
    "text behind a name": FILE.replace(b"--- a/x\n", b"--- a/x\t2026-12-01\n") + HUNK,
    "carriage return in a name": FILE.replace(b"+++ b/x", b"+++ b/x\r") + HUNK,
    "no last line end": (FILE + HUNK)[:-1],
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_the_unusual_is_left_to_git(name: str) -> None:
    with pytest.raises(UnusualDiffError) as caught:
        parse_diff(UNUSUAL[name], first_line=10)
    assert not isinstance(caught.value, DamagedDiffError)
    assert caught.value.line >= 10


@pytest.mark.parametrize("line", [b" more", b"+more", b"-more"])
def test_a_hunk_longer_than_it_says_is_damaged(line: bytes) -> None:
    with pytest.raises(DamagedDiffError) as caught:
        parse_diff(FILE + HUNK + line + b"\n")
    assert caught.value.line == 9


BINARY = (
    b"diff --git a/x b/x\n%s 100644\nGIT binary patch\nliteral 4\nLcmZQzWMT#Y01f~L\n\n"
    b"literal 3\nKcmZQzWC8#H2LJ>B\n\n" % INDEX
)


def test_a_binary_hunk_is_inflated() -> None:
    (section,) = parse_diff(BINARY)
    assert section.binary is not None
    assert section.binary.apply(b"anything") == b"\0\1\2\3"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"literal 4", b"literal 5"),
        (b"literal 4", b"literally"),
        (b"LcmZ", b"KcmZ"),
        (b"LcmZ", b"?cmZ"),
        (b"LcmZ", b"Lc,Z"),
        (b"LcmZQ", b"LcmZR"),
        (b"01f~L\n\nliteral 3\nKcmZQzWC8#H2LJ>B\n\n", b"01f~L\n"),
    ],
)
def test_a_damaged_binary_hunk_is_left_to_git(old: bytes, new: bytes) -> None:
    assert old in BINARY
    with pytest.raises(UnusualDiffError):
        parse_diff(BINARY.replace(old, new, 1))


def test_no_module_of_this_room_decodes_a_diff() -> None:
    source = Path(__file__).parents[3] / "tools" / "mxtree" / "series" / "diff.py"
    assert ".splitlines" not in source.read_text()
