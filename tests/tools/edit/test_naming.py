# SPDX-License-Identifier: Apache-2.0
"""Names that outlive amend, reword and reorder."""

from __future__ import annotations

import pytest

from mxtree.edit.naming import assign_names, next_id, slug
from mxtree.errors import FatalError
from mxtree.series.listing import PATCH_NAME


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("Attention backend: coerce names", "Attention-backend-coerce-names"),
        ("[PERF] Größe ändern / x..y", "PERF-Gr-e-ndern-x-y"),
        ("...", "patch"),
        ("", "patch"),
        ("a" * 80, "a" * 52),
    ],
)
def test_slug(subject: str, expected: str) -> None:
    assert slug(subject) == expected
    assert PATCH_NAME.fullmatch(f"0001-{expected}.patch")


def test_a_number_is_never_used_twice() -> None:
    assert next_id([]) == "0001"
    assert next_id(["0001-a.patch", "0007-b.patch"]) == "0008"
    with pytest.raises(FatalError, match="9999"):
        next_id(["9999-z.patch"])


def test_the_recorded_name_wins_over_the_subject() -> None:
    names = assign_names([["0003-old.patch"]], ["Quite another subject"], ["0003-old.patch"])
    assert names == ("0003-old.patch",)


def test_after_a_squash_the_first_name_lives_on() -> None:
    both = ["0001-a.patch", "0002-b.patch"]
    assert assign_names([both], ["A"], both) == ("0001-a.patch",)


def test_after_a_split_the_second_half_gets_a_new_number() -> None:
    names = assign_names([["0001-a.patch"], ["0001-a.patch"]], ["A", "Half of A"], ["0001-a.patch"])
    assert names == ("0001-a.patch", "0002-Half-of-A.patch")


def test_without_a_note_the_slug_finds_the_name_again() -> None:
    names = assign_names([[], []], ["New one", "Old one"], ["0004-old-one.patch"])
    assert names == ("0005-New-one.patch", "0004-old-one.patch")


def test_two_equal_subjects_get_two_names() -> None:
    assert assign_names([[], []], ["A", "A"], []) == ("0001-A.patch", "0002-A.patch")
