# SPDX-License-Identifier: Apache-2.0
"""Binary hunks: git's deltas."""

from __future__ import annotations

import pytest

from mxtree.series.binary import BadDeltaError, apply_delta, decode_lines

OLD = bytes(range(200)) * 2


def test_copies_and_insertions() -> None:
    delta = b"\x90\x03" + b"\x09" + b"\x91\x0a\x04" + b"\x03abc" + b"\x90\x02"
    assert apply_delta(OLD, delta) == OLD[10:14] + b"abc" + OLD[:2]


def test_a_copy_of_size_zero_is_64_kib() -> None:
    old = bytes(70000)
    assert len(apply_delta(old, b"\xf0\xa2\x04" + b"\x80\x80\x04" + b"\x80")) == 0x10000


def test_offsets_of_three_bytes() -> None:
    old = bytes(0x10203) + b"here"
    size = len(old)
    head = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14]) + b"\x04"
    assert apply_delta(old, head + b"\x97\x03\x02\x01\x04") == b"here"


@pytest.mark.parametrize(
    "delta",
    [
        b"",
        b"\x90",
        b"\x90\x03",
        b"\x90\x03\x04\x91\x0a",
        b"\x90\x03\x04\x03ab",
        b"\x90\x03\x01\x00",
        b"\x90\x03\x05\x91\x0a\x04",
        b"\x91\x03\x04\x91\x0a\x04",
        b"\x90\x03\x7f\xb3\xff\x01\x7f",
    ],
)
def test_a_delta_that_does_not_fit_is_refused(delta: bytes) -> None:
    with pytest.raises(BadDeltaError):
        apply_delta(OLD, delta)


def test_garbage_does_not_inflate() -> None:
    with pytest.raises(BadDeltaError):
        decode_lines([b"D00000"], 4)
