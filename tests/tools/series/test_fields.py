# SPDX-License-Identifier: Apache-2.0
"""Header fields in a commit message."""

from __future__ import annotations

import pytest

from mxtree.series.fields import Field, parse_fields, split_list


def test_fields_with_continuations_and_paragraphs() -> None:
    message = (
        "Subject: no field\n\nA: one\n two\n\tthree\nB:\n four\n\nC-D: five\n\nFree text.\nE: no\n"
    )
    assert parse_fields(message) == (
        Field("A", "one two three", 3),
        Field("B", "four", 6),
        Field("C-D", "five", 9),
    )


def test_a_field_without_a_value_is_empty() -> None:
    assert parse_fields("s\n\nA:\nB: x\n") == (Field("A", "", 3), Field("B", "x", 4))


@pytest.mark.parametrize("line", ["Free text", "A:no space", "A b: c", "1A: x", ": x", "é: x"])
def test_the_first_other_line_ends_the_fields(line: str) -> None:
    assert parse_fields(f"s\n\nA: x\n{line}\nB: y\n") == (Field("A", "x", 3),)


def test_no_fields() -> None:
    assert parse_fields("subject\n") == ()
    assert parse_fields("subject\n\n continuation of nothing\nA: x\n") == ()


def test_lists_are_split_at_commas() -> None:
    assert split_list("a, b,c , ") == ("a", "b", "c")
    assert split_list("") == ()
