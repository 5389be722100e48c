# SPDX-License-Identifier: Apache-2.0
"""Applying a series: what comes back, what is left behind."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from git_am_reference import git_am
from small_repo import BASE, SmallRepo, edited

from mxtree.engine import Applied, Fit, apply_prefix, apply_series
from mxtree.errors import FatalError
from mxtree.git import git, git_text
from mxtree.series import Patch, load_series

NUMBERS = b"core/numbers.py"


def test_no_patches_are_no_commits(small: SmallRepo) -> None:
    assert apply_series(small.path, small.base, []) == ()


def test_each_patch_is_one_commit_on_the_one_before(small: SmallRepo) -> None:
    patches = small.patches({NUMBERS: edited((5, b"5\n"))}, {}, {b"empty": b"x"}, {b"empty": None})
    applied = small.apply(patches)
    assert [item.patch for item in applied] == patches
    parent = small.base
    for item in applied:
        found = git_text("log", "-1", "--format=%P %T", item.commit, cwd=small.path)
        assert found == f"{parent} {item.tree}"
        parent = item.commit


def test_author_and_dates_are_the_patch_s_and_the_committer_is_mxtree(small: SmallRepo) -> None:
    (patch,) = small.patches({NUMBERS: edited((5, b"5\n"))})
    (item,) = small.apply([patch])
    row = git_text("log", "-1", "--format=%an|%ae|%at|%cn|%ce|%ct", item.commit, cwd=small.path)
    assert row == "Ada L|ada@example.org|1796083200|mxtree|mxtree@mxtree.invalid|1796083200"


def test_the_base_may_have_a_name(small: SmallRepo) -> None:
    patches = small.patches({NUMBERS: edited((5, b"5\n"))})
    git("tag", "v1", small.base, cwd=small.path)
    assert apply_series(small.path, "v1", patches) == small.apply(patches)


def test_an_unknown_base_is_an_error(small: SmallRepo) -> None:
    with pytest.raises(FatalError):
        apply_series(small.path, "0" * 40, small.patches({b"empty": b"x"}))


def test_offsets_are_told(small: SmallRepo) -> None:
    patches = small.patches({NUMBERS: edited((20, b"twenty\n"))}, {b"empty": b"x\n"})
    moved = small.on({NUMBERS: b"zero\n" + BASE[NUMBERS][1]})
    assert [item.fit for item in small.apply(patches, moved)] == [Fit.OFFSET, Fit.EXACT]


def test_a_series_from_files_is_the_same_as_git_am_makes_of_them(
    small: SmallRepo, tmp_path: Path
) -> None:
    folder = tmp_path / "megatron-lm" / "1.0"
    small.patches({NUMBERS: edited((5, b"5\n"))}, {b"new": b"x\n"}, folder=folder)
    patches = load_series(folder).patches
    applied = apply_series(small.path, small.base, patches)
    made, said = git_am(small.path, small.base, [patch.raw for patch in patches])
    assert [(item.commit, item.tree) for item in applied] == made, said


def test_a_file_may_become_a_folder_and_back(small: SmallRepo) -> None:
    applied = small.apply(
        small.patches({b"empty": None, b"empty/x": b"1"}, {b"empty/x": None, b"empty": b"2"})
    )
    assert small.read(applied, "empty") == b"2"


def test_files_may_change_places(small: SmallRepo) -> None:
    one, other = BASE[NUMBERS][1], BASE[b"core/data.bin"][1]
    (patch,) = small.patches({NUMBERS: other, b"core/data.bin": one})
    applied = small.apply([patch])
    assert small.read(applied, "core/numbers.py") == other
    assert small.read(applied, "core/data.bin") == one


def test_no_reference_and_no_file_of_the_repository_changes(small: SmallRepo) -> None:
    patches = small.patches(*({NUMBERS: edited((n, b"x\n"))} for n in range(1, 9)))
    before = _outside_objects(small.path)
    small.apply(patches)
    assert _outside_objects(small.path) == before


def _outside_objects(repo: Path) -> dict[Path, bytes]:
    files = (path for path in repo.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files if "objects" not in path.parts}


def test_nothing_is_left_in_the_temporary_folder(
    small: SmallRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    patches = small.patches({NUMBERS: edited((5, b"5\n"))}, {b"empty": b"x\n"})
    bad = Patch(patches[1].path, "0002", patches[1].name, patches[1].raw.replace(b"empty", b"none"))
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    small.apply(patches)
    apply_prefix(small.path, small.base, [patches[0], bad])
    with pytest.raises(FatalError):
        small.apply([Patch(bad.path, "0002", bad.name, bad.raw.replace(b"none", b".git/x"))])
    assert list(scratch.iterdir()) == []


def test_two_at_once_in_one_repository_give_the_same(small: SmallRepo) -> None:
    patches = small.patches(*({NUMBERS: edited((n, b"%d!\n" % n))} for n in range(1, 40)))
    results: list[tuple[Applied, ...]] = []
    threads = [
        threading.Thread(target=lambda: results.append(small.apply(patches))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    assert results[0] == results[1] == results[2]
    git("fsck", "--strict", results[0][-1].commit, cwd=small.path)
