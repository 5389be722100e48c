# SPDX-License-Identifier: Apache-2.0
"""No patch writes outside its tree, whatever it calls the path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from random_history import FILE, SYMLINK
from small_repo import LINES, SmallRepo, edited

from mxtree.engine.paths import wrong_path
from mxtree.errors import FatalError
from mxtree.git import git
from mxtree.series import Patch

if TYPE_CHECKING:
    from pathlib import Path

OUTSIDE = (
    *("../evil", "a/../../evil", "/etc/passwd", "a//b", "./a", "a/./b", "a/..", ""),
    *("C:/evil", "c:evil", "\\evil", "a\\..\\..\\evil"),
)
GIT_FOLDER = (
    *(".git/hooks/post-checkout", "sub/.git/config", ".GIT/config", ".Git", "git~1/config"),
    *("GIT~1/hooks/x", ".git /config", ".git./config", ".git. . /x", ".git::$INDEX_ALLOCATION/x"),
    *(".g\u200cit/config", ".\u202egit/x", "a\\.git\\config", ".git\ufeff/config"),
)
FINE = (".github/workflows/x.yml", ".gitignore", "a/.gitattributes", "git/x", "..a/b..", "a b")


@pytest.mark.parametrize("path", [*OUTSIDE, *GIT_FOLDER])
def test_a_path_out_of_the_tree_is_refused(path: str) -> None:
    assert wrong_path(path.encode()) is not None


@pytest.mark.parametrize("path", FINE)
def test_an_ordinary_path_is_not(path: str) -> None:
    assert wrong_path(path.encode()) is None


def test_bytes_that_are_no_text_are_paths_too() -> None:
    assert wrong_path(b"caf\xe9/x") is None
    assert wrong_path(b"caf\xe9/.git/x") is not None


def renamed(patch: Patch, old: bytes, new: bytes) -> Patch:
    return Patch(patch.path, patch.id, patch.name, patch.raw.replace(old, new))


@pytest.mark.parametrize("path", [b"../evil", b"/tmp/evil", b".git/hooks/x", b"GIT~1/x"])
@pytest.mark.parametrize("kind", ["add", "rename", "copy"])
def test_the_series_is_refused_before_anything_is_applied(
    small: SmallRepo, path: bytes, kind: str
) -> None:
    if kind == "add":
        good, bad = small.patches({b"empty": b"fine\n"}, {b"aim": b"new\n"})
    else:
        good, bad = small.patches(
            {b"empty": b"fine\n"}, {b"aim": b"".join(LINES), b"core/numbers.py": None}
        )
        bad = renamed(bad, b"rename ", b"%s " % kind.encode())
    before = _objects(small.path)
    with pytest.raises(FatalError) as caught:
        small.apply([good, renamed(bad, b"aim", path)])
    assert caught.value.message.startswith("patches/upstream/1.0/0002-change.patch:")
    assert path.decode() in caught.value.message
    assert _objects(small.path) == before


def _objects(repo: Path) -> set[Path]:
    return {path for path in (repo / "objects").rglob("*") if path.is_file()}


def test_a_path_through_a_link_of_the_release_is_refused(small: SmallRepo) -> None:
    (patch,) = small.patches({b"lane/new": b"x\n"})
    with pytest.raises(FatalError, match="leads through the symbolic link link, made by the upst"):
        small.apply([renamed(patch, b"lane/new", b"link/new")])


def test_a_change_through_a_link_is_refused(small: SmallRepo) -> None:
    (patch,) = small.patches({b"core/numbers.py": edited((3, b"three\n"))})
    with pytest.raises(FatalError, match="leads through the symbolic link link"):
        small.apply([renamed(patch, b"core/numbers.py", b"link/numbers.py")])


def test_a_path_through_a_link_of_an_earlier_patch_names_that_patch(small: SmallRepo) -> None:
    first, second = small.patches({b"out": (SYMLINK, b"/tmp")}, {b"tuo/x": b"x\n"})
    with pytest.raises(FatalError, match=r"symbolic link out, made by patch 0001-change\.patch"):
        small.apply([first, renamed(second, b"tuo/x", b"out/x")])


def test_a_link_and_a_path_through_it_in_one_patch_are_refused(small: SmallRepo) -> None:
    (patch,) = small.patches({b"out": (SYMLINK, b"/tmp"), b"tuo/x": b"x\n"})
    with pytest.raises(FatalError, match="leads through the symbolic link out"):
        small.apply([renamed(patch, b"tuo/x", b"out/x")])


def test_a_folder_may_take_the_place_of_a_link(small: SmallRepo) -> None:
    applied = small.apply(small.patches({b"link": None, b"link/x": b"x\n"}))
    assert small.read(applied, "link/x") == b"x\n"


def test_gitmodules_must_not_be_a_link(small: SmallRepo) -> None:
    with pytest.raises(FatalError, match="must not be a symbolic link"):
        small.apply(small.patches({b"sub/.gitmodules": (SYMLINK, b"../x")}))


def test_a_path_that_only_git_can_read_is_checked_as_well(small: SmallRepo) -> None:
    """A mail without mbox separator goes through git, which refuses the path itself."""
    (patch,) = small.patches({b"aim": b"new\n"})
    raw = patch.raw.partition(b"\n")[2].replace(b"aim", b"../evil")
    with pytest.raises(FatalError) as caught:
        small.apply([Patch(patch.path, patch.id, patch.name, raw)])
    assert any("invalid path '../evil'" in row for row in caught.value.details)


def test_modes_of_new_files_are_those_of_the_patch(small: SmallRepo) -> None:
    applied = small.apply(small.patches({b"tool": (0o100755, b"#!\n"), b"plain": (FILE, b"x")}))
    listing = git("ls-tree", applied[-1].commit, "tool", "plain", cwd=small.path)
    assert [row.split()[0] for row in listing.splitlines()] == [b"100644", b"100755"]
