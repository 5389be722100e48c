# SPDX-License-Identifier: Apache-2.0
"""One reading of a scalar everywhere, and writing that it undoes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxflux.recipe.reader import Reader
from mxflux.recipe.scalars import read_scalar, write_scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2e-4", 2e-4),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-3", -3),
        ("+7", 7),
        ("0123", 123),
        ("true", True),
        ("False", False),
        ("", None),
        ("~", None),
        ("null", None),
        # Texts of YAML 1.2, whatever YAML 1.1 made of them.
        ("yes", "yes"),
        ("off", "off"),
        ("none", "none"),
        ("0o17", "0o17"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"),
        (".inf", ".inf"),
        ("nan", "nan"),
        ("1e", "1e"),
    ],
)
def test_plain_scalars(text: str, value: object) -> None:
    read = read_scalar(text)
    assert read == value
    assert type(read) is type(value)


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
)


@settings(deadline=None)
@given(values)
def test_what_is_written_is_read_back(value: object) -> None:
    text = f"key: {write_scalar(value)}\n"  # type: ignore[arg-type]
    root = Reader(text, "x.yaml", {}).read()
    assert root is not None
    read = root.plain()["key"]
    assert read == value
    assert type(read) is type(value)
    if isinstance(value, float):
        assert isinstance(read, float)
        assert math.copysign(1, read) == math.copysign(1, value)
