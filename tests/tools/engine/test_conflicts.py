# SPDX-License-Identifier: Apache-2.0
"""A patch that does not apply: one screen with everything that one needs."""

from __future__ import annotations

import pytest
from small_repo import LINES, SmallRepo, edited

from mxtree.engine import ConflictError, Fit, apply_prefix, apply_series
from mxtree.errors import ExitCode
from mxtree.git import git
from mxtree.series import Patch

NUMBERS = b"core/numbers.py"
SCREEN = 40


def conflict(small: SmallRepo, patches: list[Patch], base: str | None = None) -> ConflictError:
    with pytest.raises(ConflictError) as caught:
        small.apply(patches, base)
    error = caught.value
    assert error.code == ExitCode.CONFLICT
    assert len(error.details) <= SCREEN
    assert error.hint is not None
    assert "mxtree rebase upstream --from X --onto 1.0" in error.hint
    assert "0001-change.patch out of patches/upstream/1.0/series" in error.hint
    return error


def test_a_hunk_that_fits_nowhere_shows_the_three_versions(small: SmallRepo) -> None:
    patches = small.patches({NUMBERS: edited((5, b"five\n"), (20, b"twenty\n"))})
    error = conflict(small, patches, small.on({NUMBERS: edited((21, b"changed upstream\n"))}))
    assert error.message == (
        "patch 0001-change.patch does not apply to core/numbers.py: a hunk fits nowhere"
    )
    assert error.details == (
        "patch   patches/upstream/1.0/0001-change.patch:20",
        "file    core/numbers.py",
        "hunk    2 of 2: @@ -17,7 +17,7 @@ line 16",
        "the patch expects, in lines 17 to 23:",
        "    line 17",
        "    line 18",
        "    line 19",
        "    line 20",
        "  ! line 21",
        "    line 22",
        "    line 23",
        "there now (nearest match: line 17, 6 of 7 lines equal):",
        "    line 17",
        "    line 18",
        "    line 19",
        "    line 20",
        "  ! changed upstream",
        "    line 22",
        "    line 23",
        "the patch wants:",
        "    line 17",
        "    line 18",
        "    line 19",
        "  ! twenty",
        "    line 21",
        "    line 22",
        "    line 23",
    )


def test_the_nearest_match_is_found_where_the_lines_have_gone(small: SmallRepo) -> None:
    patches = small.patches({NUMBERS: edited((20, b"twenty\n"))})
    moved = b"".join([*LINES[:2], *(b"new %d\n" % i for i in range(9)), *LINES[2:]])
    error = conflict(small, patches, small.on({NUMBERS: moved.replace(b"line 21\n", b"gone\n")}))
    assert "there now (nearest match: line 26, 6 of 7 lines equal):" in error.details


def test_nothing_like_it_is_said_when_nothing_is_left(small: SmallRepo) -> None:
    patches = small.patches({NUMBERS: edited((20, b"twenty\n"))})
    error = conflict(small, patches, small.on({NUMBERS: b"all new\n"}))
    assert "there now: nothing like it in the 1 lines of the file" in error.details


@pytest.mark.parametrize(
    ("there", "remark"),
    [
        (b"".join(LINES).replace(b"\n", b"\r\n"), "the two differ in line ends only"),
        (b"".join(LINES).replace(b"line ", b"line  "), "the two differ in white space only"),
        (edited((20, b"twenty\n")), "what the patch wants is there already, at line 17"),
        (b"".join(LINES[16:]), "not at the beginning of the file"),
    ],
)
def test_what_the_eye_does_not_see_is_said(small: SmallRepo, there: bytes, remark: str) -> None:
    line = 2 if "beginning" in remark else 20
    there = b"zero\n" + b"".join(LINES) if "beginning" in remark else there
    patches = small.patches({NUMBERS: edited((line, b"twenty\n"))})
    error = conflict(small, patches, small.on({NUMBERS: there}))
    assert remark in error.details[-1]


def test_lines_that_must_be_the_last_are_explained(small: SmallRepo) -> None:
    patches = small.patches({NUMBERS: b"".join([*LINES, b"line 41\n"])})
    longer = small.on({NUMBERS: b"".join([*LINES, b"something else\n"])})
    assert "expects the end of the file" in conflict(small, patches, longer).details[-1]


def test_a_missing_file_is_named_with_its_namesakes(small: SmallRepo) -> None:
    patches = small.patches({NUMBERS: edited((5, b"five\n"))})
    moved = small.on({NUMBERS: None, b"src/numbers.py": b"".join(LINES)})
    error = conflict(small, patches, moved)
    assert error.message.endswith("core/numbers.py: the file does not exist")
    assert error.details[-1] == "files of that name   src/numbers.py"


def test_a_file_that_an_earlier_patch_removed_names_that_patch(small: SmallRepo) -> None:
    removal, change = (
        small.patches({NUMBERS: None})[0],
        small.patches({NUMBERS: edited((5, b"five\n"))})[0],
    )
    first = Patch(
        removal.path.with_name("0007-remove.patch"), "0007", "0007-remove.patch", removal.raw
    )
    with pytest.raises(ConflictError) as caught:
        small.apply([first, change])
    assert "as patch 0007-remove.patch left it" in caught.value.details[1]


def test_a_file_that_exists_already_says_whether_it_is_the_same(small: SmallRepo) -> None:
    patches = small.patches({b"core/new.py": b"new\n"})
    same = conflict(small, patches, small.on({b"core/new.py": b"new\n"}))
    assert same.message.endswith("core/new.py: the file exists already")
    assert "the very one that it wants" in same.details[3]
    other = conflict(small, patches, small.on({b"core/new.py": b"other\n"}))
    assert "the very one that it wants" not in other.details[3]


def test_another_binary_shows_the_three_ids(small: SmallRepo) -> None:
    patches = small.patches({b"core/data.bin": bytes(range(255, -1, -1))})
    error = conflict(small, patches, small.on({b"core/data.bin": b"\0other"}))
    assert error.message.endswith("core/data.bin: the binary file has other content")
    ids = [row.split()[-1] for row in error.details[2:5]]
    assert len(set(ids)) == 3
    assert all(len(oid) == 40 for oid in ids)


def test_a_link_where_a_file_was_is_of_another_type(small: SmallRepo) -> None:
    patches = small.patches({NUMBERS: edited((5, b"five\n"))})
    error = conflict(small, patches, small.on({NUMBERS: (0o120000, b"elsewhere")}))
    assert error.message.endswith("the file is of another type")
    assert "mode 120000" in error.details[3]


def test_deleting_less_than_the_whole_file_is_refused(small: SmallRepo) -> None:
    patches = small.patches({b"empty": None})
    error = conflict(small, patches, small.on({b"empty": b"no longer\n"}))
    assert error.message.endswith("the patch deletes the file but not all of its lines")
    assert "    no longer" in error.details


def test_a_diff_that_only_git_can_judge_shows_the_words_of_git(small: SmallRepo) -> None:
    patch = small.patches({NUMBERS: edited((5, b"five\n"))})[0]
    raw = patch.raw.replace(b"@@ -2,7 +2,7 @@", b"@@ -2,9 +2,9 @@")
    error = conflict(small, [Patch(patch.path, patch.id, patch.name, raw)])
    assert any("corrupt patch" in row for row in error.details)


def test_the_patches_before_a_conflict_can_be_kept(small: SmallRepo) -> None:
    patches = small.patches({NUMBERS: edited((5, b"5\n"))}, {b"empty": b"1\n"}, {b"empty": b"2\n"})
    base = small.on({b"empty": b"not empty\n"})
    applied, error = apply_prefix(small.path, base, patches)
    assert [item.patch.id for item in applied] == ["0001"]
    assert error is not None
    assert error.patch is patches[1]
    assert git("cat-file", "-t", applied[0].commit, cwd=small.path) == b"commit\n"


def test_three_way_merges_what_does_not_apply_strictly(small: SmallRepo) -> None:
    patches = small.patches({NUMBERS: edited((5, b"five\n"))}, {b"empty": b"full\n"})
    base = small.on({NUMBERS: edited((8, b"eight\n"))})
    with pytest.raises(ConflictError):
        apply_series(small.path, base, patches)
    applied = apply_series(small.path, base, patches, three_way=True)
    assert [item.fit for item in applied] == [Fit.THREE_WAY, Fit.EXACT]
    assert small.read(applied, "core/numbers.py") == edited((5, b"five\n"), (8, b"eight\n"))


def test_a_patch_that_three_way_swallows_is_a_conflict(small: SmallRepo) -> None:
    """`git am -3` exits 0 and drops a patch that is already there; nothing may vanish here."""
    patches = small.patches({NUMBERS: edited((5, b"five\n"))}, {b"empty": b"full\n"})
    base = small.on({NUMBERS: edited((5, b"five\n"))})
    applied, error = apply_prefix(small.path, base, patches, three_way=True)
    assert applied == ()
    assert error is not None
    assert error.is_merged
    assert "what the patch wants is there already, at line 2" in error.details[-1]
