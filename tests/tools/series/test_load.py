# SPDX-License-Identifier: Apache-2.0
"""A series directory: what is in it, and one error with everything that is wrong."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from mxtree.errors import ExitCode, FatalError
from mxtree.series import load_series
from mxtree.series.load import read_series


@pytest.fixture
def directory(tmp_path: Path, raw: bytes) -> Path:
    """Two patches; the second one comes first."""
    folder = tmp_path / "upstream" / "1.0"
    folder.mkdir(parents=True)
    (folder / "series").write_text("0002-second.patch\n0001-first.patch\n")
    (folder / "0001-first.patch").write_bytes(raw)
    (folder / "0002-second.patch").write_bytes(raw.replace(b"three", b"four"))
    return folder


def problems(directory: Path) -> list[tuple[str, int, str]]:
    return [(found.path.name, found.line, found.rule) for found in read_series(directory)[1]]


def test_order_is_that_of_the_list_alone(directory: Path, raw: bytes) -> None:
    series = load_series(directory)
    assert [patch.id for patch in series.patches] == ["0002", "0001"]
    first = series.patches[1]
    assert first.path == directory / "0001-first.patch"
    assert first.raw == raw
    assert first.digest == hashlib.sha256(raw).hexdigest()
    assert first.subject == "Count to three"


def test_fields_are_unfolded(directory: Path) -> None:
    patch = load_series(directory).patches[1]
    assert patch.fields == {
        "Description": (
            "Two was not enough for anybody who has three heads, as every hydra will tell."
        ),
        "Origin": "vendor, mxtree authors",
        "Upstream-Status": "Pending",
        "Changes": "code.count, code.Counter.total",
        "Proven-By": "tests/tree/test_code.py::test_count",
    }
    assert patch.changes == ("code.count", "code.Counter.total")
    assert patch.proven_by == ("tests/tree/test_code.py::test_count",)


@pytest.mark.parametrize("name", ["notes.txt", "0003-third.patch", ".DS_Store", "x.patch.orig"])
def test_a_stray_file_is_a_problem(directory: Path, name: str) -> None:
    (directory / name).write_text("x")
    assert problems(directory) == [(name, 0, "series-stray")]


def test_a_stray_folder_is_a_problem(directory: Path) -> None:
    (directory / "old").mkdir()
    assert problems(directory) == [("old", 0, "series-stray")]


def test_a_stray_that_differs_in_case_says_so(directory: Path, raw: bytes) -> None:
    (directory / "0001-First.patch").write_bytes(raw)
    found = read_series(directory)[1]
    assert [item.message for item in found] == ["differs from 0001-first.patch only in case"]


def test_a_missing_patch_is_located_in_the_list(directory: Path) -> None:
    (directory / "0001-first.patch").unlink()
    assert problems(directory) == [("series", 2, "series-missing-patch")]


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder"])
def test_a_patch_must_be_a_regular_file(directory: Path, tmp_path: Path, kind: str) -> None:
    path = directory / "0001-first.patch"
    shutil.move(path, tmp_path / "outside.patch")
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / ("outside.patch" if kind == "link" else "nowhere"))
    assert problems(directory) == [("series", 2, "series-missing-patch")]


def test_a_patch_that_git_cannot_read_is_a_problem(directory: Path) -> None:
    (directory / "0001-first.patch").write_bytes(b"hello\n")
    assert problems(directory) == [("0001-first.patch", 1, "patch-mail")]


@pytest.mark.parametrize("header", [b"From: ", b"Date: ", b"Subject: "])
def test_a_missing_mail_header_is_named(directory: Path, raw: bytes, header: bytes) -> None:
    lines = [line for line in raw.split(b"\n") if not line.startswith(header)]
    (directory / "0001-first.patch").write_bytes(b"\n".join(lines))
    (found,) = read_series(directory)[1]
    assert found.rule == "patch-mail"
    name = {b"From: ": "Author", b"Date: ": "Date", b"Subject: ": "Subject"}[header]
    assert f"git finds no {name}" in found.message


def test_two_mails_in_a_file_are_a_problem(directory: Path, raw: bytes) -> None:
    (directory / "0001-first.patch").write_bytes(raw + raw)
    (found,) = read_series(directory)[1]
    assert "holds 2 mails" in found.message


def test_a_file_that_lost_its_line_ends_to_windows_says_so(directory: Path, raw: bytes) -> None:
    (directory / "0001-first.patch").write_bytes(raw.replace(b"\n", b"\r\n"))
    (found,) = read_series(directory)[1]
    assert found.rule == "patch-crlf"
    assert "*.patch -text" in found.fix


def test_a_file_without_its_last_line_end_is_a_problem(directory: Path, raw: bytes) -> None:
    (directory / "0001-first.patch").write_bytes(raw[:-1])
    assert problems(directory) == [("0001-first.patch", 22, "patch-newline")]


def test_an_empty_file_is_a_problem(directory: Path) -> None:
    (directory / "0001-first.patch").write_bytes(b"")
    assert [rule for _, _, rule in problems(directory)] == ["patch-mail"]


def test_one_error_holds_every_problem(directory: Path) -> None:
    (directory / "stray").write_text("x")
    (directory / "0001-first.patch").unlink()
    with (directory / "series").open("a") as file:
        file.write("0002-second.patch\nx/y\n")
    with pytest.raises(FatalError) as caught:
        load_series(directory)
    error = caught.value
    assert error.code == ExitCode.USAGE
    assert error.message == f"the series in {directory} has 4 problems"
    where = [row.split(": ")[0] for row in error.details]
    series = str(directory / "series")
    assert where == [f"{series}:2", f"{series}:3", f"{series}:4", str(directory / "stray")]
    assert error.hint is not None
    assert "mxtree lint" in error.hint


def test_a_hundred_problems_still_fit_on_a_screen(directory: Path) -> None:
    for number in range(100):
        (directory / f"stray{number}").touch()
    with pytest.raises(FatalError) as caught:
        load_series(directory)
    assert len(caught.value.details) == 21
    assert caught.value.details[-1] == "and 80 more"


def test_a_missing_folder_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="has 1 problem"):
        load_series(tmp_path / "none")
