# SPDX-License-Identifier: Apache-2.0
"""The series file: order, and every way to get it wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mxtree.git import git, git_text
from mxtree.series.listing import read_listing

if TYPE_CHECKING:
    from pathlib import Path


def read(folder: Path, content: bytes) -> tuple[list[str], list[tuple[int, str]]]:
    """Return the names, and (line, rule) of each problem."""
    (folder / "series").write_bytes(content)
    entries, problems = read_listing(folder)
    return [entry.name for entry in entries], [(found.line, found.rule) for found in problems]


def test_names_comments_and_blank_lines(tmp_path: Path) -> None:
    text = b"# why this order\n0002-b.patch\n\n# next\n0001-a.patch\n"
    assert read(tmp_path, text) == (["0002-b.patch", "0001-a.patch"], [])


@pytest.mark.parametrize(
    "subject", ["change x/__init__.py: y" * 3, "a_" * 40, "b." * 40, "日本語", ".x", "__init__"]
)
def test_every_name_that_git_format_patch_writes_is_one(tmp_path: Path, subject: str) -> None:
    git("init", "--quiet", tmp_path)
    options = ("--quiet", "--allow-empty", "--message", subject)
    git("commit", *options, cwd=tmp_path)
    name = git_text("format-patch", "--always", "--root", "HEAD", cwd=tmp_path)
    assert read(tmp_path, f"{name}\n".encode()) == ([name], [])


@pytest.mark.parametrize("text", [b"", b"# nothing yet\n", b"\n\n"])
def test_a_series_may_be_empty(tmp_path: Path, text: bytes) -> None:
    assert read(tmp_path, text) == ([], [])


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (b"sub/0002-b.patch", "series-path"),
        (b"../0002-b.patch", "series-path"),
        (b"/0002-b.patch", "series-path"),
        (b"sub\\0002-b.patch", "series-path"),
        (b"0002-b.patch -p0", "series-option"),
        (b"0002-b.patch -p1", "series-option"),
        (b"0002-b.patch # why", "series-comment"),
        (b"0002-b.patch ", "series-space"),
        (b"0002-b.patch\t", "series-control"),
        (b" 0002-b.patch", "series-name"),
        (b"0002-b.patch\f", "series-control"),
        (b"\f", "series-control"),
        (b"\v0002-b.patch", "series-control"),
        (b"0002-b.patch\r", "series-crlf"),
        (b"\r", "series-crlf"),
        (b"# comment\r", "series-crlf"),
        (b"\xef\xbb\xbf0002-b.patch", "series-encoding"),
        (b"   ", "series-space"),
        (b"b.patch", "series-name"),
        (b"2-b.patch", "series-name"),
        (b"00002-b.patch", "series-name"),
        (b"0002-b.diff", "series-name"),
        (b"0002.patch", "series-name"),
        (b"0002-b c.patch", "series-name"),
        (b"0002-caf\xc3\xa9.patch", "series-name"),
        (b"0002--b.patch", "series-name"),
        (b"\xd9\xa0\xd9\xa0\xd9\xa0\xd9\xa2-b.patch", "series-name"),
    ],
)
def test_a_malformed_line_is_named_and_the_others_kept(
    tmp_path: Path, line: bytes, rule: str
) -> None:
    text = b"0001-a.patch\n%s\n0003-c.patch\n" % line
    assert read(tmp_path, text) == (["0001-a.patch", "0003-c.patch"], [(2, rule)])


@pytest.mark.parametrize(
    ("again", "rule"),
    [
        (b"0001-a.patch", "series-duplicate"),
        (b"0001-A.patch", "series-case"),
        (b"0001-other.patch", "series-id"),
    ],
)
def test_a_patch_and_an_id_stand_once(tmp_path: Path, again: bytes, rule: str) -> None:
    text = b"0001-a.patch\n0002-b.patch\n%s\n" % again
    assert read(tmp_path, text) == (["0001-a.patch", "0002-b.patch"], [(3, rule)])
    _, problems = read_listing(tmp_path)
    assert "0001-a.patch" in problems[0].message
    assert "line 1" in problems[0].message


def test_the_last_line_must_end(tmp_path: Path) -> None:
    """Two lists that git joins (merge=union) would otherwise make one name of two."""
    names, problems = read(tmp_path, b"0001-a.patch\n0002-b.patch")
    assert names == ["0001-a.patch", "0002-b.patch"]
    assert problems == [(2, "series-newline")]


def test_text_that_is_not_utf_8_is_located(tmp_path: Path) -> None:
    assert read(tmp_path, b"0001-a.patch\n# caf\xe9\n") == ([], [(2, "series-encoding")])


def test_a_missing_list_is_a_problem(tmp_path: Path) -> None:
    entries, problems = read_listing(tmp_path)
    assert entries == ()
    assert [found.rule for found in problems] == ["series-missing"]


def test_a_list_behind_a_link_is_not_a_list(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("0001-a.patch\n")
    (tmp_path / "series").symlink_to("elsewhere")
    assert "is not a regular file" in read_listing(tmp_path)[1][0].message
