# SPDX-License-Identifier: Apache-2.0
"""Sdists and wheels: what is taken, byte for byte, and what is refused by name."""

from __future__ import annotations

import base64
import hashlib
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest
from release_files import MEMBERS, Member, make_sdist, make_wheel

from mxtree.errors import ExitCode, FatalError
from mxtree.upstreams.archive import read_archive
from mxtree.upstreams.content import EXECUTABLE, REGULAR, SYMLINK

if TYPE_CHECKING:
    from pathlib import Path


def sdist(folder: Path, *members: Member, top: str = "tiny-1.0", prefix: str = "") -> Path:
    path = folder / "tiny-1.0.tar.gz"
    path.write_bytes(make_sdist(members, top, prefix))
    return path


def wheel(folder: Path, data: bytes) -> Path:
    path = folder / "round-1.0-py3-none-any.whl"
    path.write_bytes(data)
    return path


def refused(path: Path) -> FatalError:
    with pytest.raises(FatalError) as caught:
        read_archive(path)
    assert caught.value.code == ExitCode.CHECK_FAILED
    assert path.name in caught.value.message
    return caught.value


@pytest.mark.parametrize("prefix", ["", "./"])
def test_an_sdist_loses_its_top_folder_and_nothing_else(tmp_path: Path, prefix: str) -> None:
    files = {file.path: file for file in read_archive(sdist(tmp_path, *MEMBERS, prefix=prefix))}
    assert set(files) == {member.path.encode() for member in MEMBERS}
    assert files[b"tiny/crlf.py"].data == b"a = 1\r\nb = 2\r\n"
    assert files[b"tools/run.sh"].mode == EXECUTABLE
    assert files[b"tiny/__init__.py"].mode == REGULAR
    assert (files[b"docs/latest"].mode, files[b"docs/latest"].data) == (SYMLINK, b"../tiny")


GOOD = Member("pyproject.toml")


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ([Member("a/../b")], "tiny-1.0/a/../b: '..' in the path"),
        ([Member("../../etc/x")], "tiny-1.0/../../etc/x: '..' in the path"),
        ([Member(".git/hooks/x")], "tiny-1.0/.git/hooks/x: git's own folder"),
        ([Member("a/.GIT/config")], "tiny-1.0/a/.GIT/config: git's own folder"),
        ([Member("h", kind=tarfile.LNKTYPE)], "tiny-1.0/h: hard link"),
        ([Member("d", kind=tarfile.CHRTYPE)], "tiny-1.0/d: device"),
        ([Member("d", kind=tarfile.BLKTYPE)], "tiny-1.0/d: device"),
        ([Member("p", kind=tarfile.FIFOTYPE)], "tiny-1.0/p: named pipe"),
        ([Member("l", link="/etc/passwd")], "l: symbolic link to the absolute path /etc/passwd"),
        ([Member("l", link="..")], "l: symbolic link to .., outside the tree"),
        ([Member("a/l", link="../b/../../..")], "a/l: symbolic link to ../b/../../.., outside"),
        ([Member("l", link="a/../../b")], "l: symbolic link to a/../../b, outside the tree"),
        ([Member("l", link="pkg"), Member("l/x")], "l/x: lies below l, which is a symbolic link"),
        ([Member("l/x/y"), Member("l", link="pkg")], "l/x/y: lies below l, which is a symbolic l"),
        ([Member("f"), Member("f/x")], "f/x: lies below f, which is a file"),
        ([Member("f"), Member("f", b"2")], "f: listed twice"),
        ([Member(".gitmodules", link="x")], ".gitmodules: symbolic link that git does not"),
        ([Member("new\nline/../x")], r"tiny-1.0/new\nline/../x: '..' in the path"),
    ],
)
def test_members_that_lead_astray_are_refused_by_name(
    tmp_path: Path, members: list[Member], problem: str
) -> None:
    error = refused(sdist(tmp_path, GOOD, *members))
    assert len(error.details) == 1
    assert error.details[0].startswith(problem)


def test_an_absolute_member_is_refused(tmp_path: Path) -> None:
    error = refused(sdist(tmp_path, Member("/etc/x"), top=""))
    assert error.details == ("/etc/x: absolute path",)


def test_all_refused_members_are_named_up_to_a_screen(tmp_path: Path) -> None:
    error = refused(sdist(tmp_path, *[Member(f"{n}/../x") for n in range(25)]))
    assert "25 member(s)" in error.message
    assert len(error.details) == 21
    assert error.details[-1] == "... and 5 more"


@pytest.mark.parametrize(
    ("members", "top", "has"),
    [
        ([Member("a/x"), Member("b/x")], "", "a, b"),
        ([Member("x")], "", "x"),
        ([], "", "nothing"),
    ],
)
def test_an_sdist_has_one_top_folder(
    tmp_path: Path, members: list[Member], top: str, has: str
) -> None:
    assert refused(sdist(tmp_path, *members, top=top)).message.endswith(f"has {has}")


@pytest.mark.parametrize("keep", [0, 20, 200])
def test_a_broken_archive_is_said(tmp_path: Path, keep: int) -> None:
    path = sdist(tmp_path, *MEMBERS)
    path.write_bytes(path.read_bytes()[:keep])
    assert "is not a readable .tar.gz" in refused(path).message
    broken = wheel(tmp_path, make_wheel({"x.py": b"x"})[:keep])
    assert "is not a readable wheel" in refused(broken).message


def test_a_wheel_keeps_its_dist_info(tmp_path: Path) -> None:
    data = make_wheel({"x/a.py": b"a\r\n", "x/run": b"#!"}, executable=frozenset({"x/run"}))
    files = {file.path: file for file in read_archive(wheel(tmp_path, data))}
    assert set(files) == {
        b"x/a.py",
        b"x/run",
        b"tiny-1.0.dist-info/METADATA",
        b"tiny-1.0.dist-info/WHEEL",
        b"tiny-1.0.dist-info/RECORD",
    }
    assert files[b"x/a.py"].mode == REGULAR
    assert files[b"x/a.py"].data == b"a\r\n"
    assert files[b"x/run"].mode == EXECUTABLE


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("x.py", "sha256=AAAA,1"), "x.py: expected sha256 AAAA, got "),
        (("x.py", "md5=AAAA,1"), "x.py: listed without a sha256"),
        (("x.py", ","), "x.py: listed without a sha256"),
        (("x.py", None), "x.py: not listed"),
        (("gone.py", "sha256=AAAA,1"), "gone.py: listed, but not there"),
    ],
)
def test_a_wheel_must_be_what_its_record_says(
    tmp_path: Path, change: tuple[str, str | None], problem: str
) -> None:
    name, row = change

    def falsify(rows: dict[str, str]) -> None:
        rows.pop(name, None)
        if row is not None:
            rows[name] = row

    error = refused(wheel(tmp_path, make_wheel({"x.py": b"x"}, record=falsify)))
    assert error.message.endswith("is not what its RECORD says")
    assert len(error.details) == 1
    assert error.details[0].startswith(problem)


def test_links_of_a_wheel_are_kept_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "round-1.0-py3-none-any.whl"
    for target in ("a.py", "../a.py"):
        with zipfile.ZipFile(path, "w") as archive:
            link = zipfile.ZipInfo("link")
            link.external_attr = 0o120777 << 16
            digest = base64.urlsafe_b64encode(hashlib.sha256(target.encode()).digest())
            archive.writestr(link, target)
            archive.writestr("a.dist-info/RECORD", f"link,sha256={digest.decode().rstrip('=')},4\n")
        if target == "a.py":
            assert (SYMLINK, b"a.py") in {(file.mode, file.data) for file in read_archive(path)}
    assert refused(path).details == ("link: symbolic link to ../a.py, outside the tree",)


def test_a_wheel_without_a_usable_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "round-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.py", b"x")
    assert "has 0 RECORD files" in refused(path).message
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a.dist-info/RECORD", b"only-a-name\n")
    assert "a.dist-info/RECORD cannot be read" in refused(path).message


def test_a_wheel_member_outside_is_refused(tmp_path: Path) -> None:
    path = wheel(tmp_path, make_wheel({"../x.py": b"x", "/y.py": b"y"}))
    assert refused(path).details == ("../x.py: '..' in the path", "/y.py: absolute path")
