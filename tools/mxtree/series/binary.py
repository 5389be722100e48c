# SPDX-License-Identifier: Apache-2.0
"""Binary patches: base 85 lines around a deflated literal or delta."""

from __future__ import annotations

import base64
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mxtree.series.lines import Lines

_HALF = re.compile(rb"(literal|delta) (\d{1,12})")


class BadDeltaError(ValueError):
    """A binary patch whose data contradict themselves or the content they apply to."""


@dataclass(frozen=True, slots=True)
class BinaryHunk:
    """The forward half of a binary patch: the new content, or a delta from the old to the new."""

    line: int
    is_delta: bool
    data: bytes

    def apply(self, old: bytes) -> bytes:
        """Return the new content. Raises `BadDeltaError` when the delta is not one of ``old``."""
        return apply_delta(old, self.data) if self.is_delta else self.data


def read_binary(lines: Lines) -> BinaryHunk:
    """Read both halves of the binary patch that comes next, and return the forward one.

    Raises `UnusualDiffError` when it is malformed.
    """
    forward = _read_half(lines)
    if lines.peek().startswith((b"literal ", b"delta ")):
        _read_half(lines)
    return forward


def _read_half(lines: Lines) -> BinaryHunk:
    line, match = lines.number, _HALF.fullmatch(lines.peek())
    if match is None:
        raise lines.unusual("neither literal nor delta")
    lines.at += 1
    start = lines.at
    while lines.peek():
        lines.at += 1
    if lines.is_at_end:
        raise lines.unusual("no blank line behind the binary hunk")
    try:
        data = decode_lines(lines.all[start : lines.at], int(match[2]))
    except BadDeltaError as error:
        raise lines.unusual(str(error)) from error
    lines.at += 1
    return BinaryHunk(line, match[1] == b"delta", data)


def decode_lines(lines: list[bytes], size: int) -> bytes:
    """Return the inflated data of base 85 ``lines``: the first byte of each is its length.

    Raises `BadDeltaError` when they are malformed or do not inflate to ``size`` bytes.
    """
    deflated = b"".join(_decode_line(line) for line in lines)
    try:
        data = zlib.decompress(deflated)
    except zlib.error as error:
        raise BadDeltaError(str(error)) from error
    if len(data) != size:
        raise BadDeltaError(f"{len(data)} bytes where the patch says {size}")
    return data


def _decode_line(line: bytes) -> bytes:
    first = line[:1]
    if first.isupper():
        length = first[0] - ord("A") + 1
    elif first.islower():
        length = first[0] - ord("a") + 27
    else:
        raise BadDeltaError(f"{first!r} is no line length")
    if len(line) != 1 + (length + 3) // 4 * 5:
        raise BadDeltaError(f"line of {len(line)} characters for {length} bytes")
    try:
        return base64.b85decode(line[1:])[:length]
    except ValueError as error:
        raise BadDeltaError(str(error)) from error


def apply_delta(old: bytes, delta: bytes) -> bytes:
    """Return the target of a git delta: two sizes, then copies from ``old`` and insertions.

    The format is that of packed deltas (gitformat-pack, "Deltified representation"). Raises
    `BadDeltaError` when it does not fit ``old``.
    """
    try:
        old_size, at = _read_size(delta, 0)
        new_size, at = _read_size(delta, at)
        out = bytearray()
        while at < len(delta):
            piece, at = _read_op(old, delta, at)
            out += piece
    except IndexError as error:
        raise BadDeltaError("the delta ends too early") from error
    if old_size != len(old) or new_size != len(out):
        raise BadDeltaError(f"sizes {len(old)} -> {len(out)}, not {old_size} -> {new_size}")
    return bytes(out)


def _read_size(delta: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = delta[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def _read_op(old: bytes, delta: bytes, at: int) -> tuple[bytes, int]:
    op = delta[at]
    at += 1
    if not op:
        raise BadDeltaError("reserved delta operation 0")
    if not op & 0x80:
        if at + op > len(delta):
            raise BadDeltaError("the delta ends too early")
        return delta[at : at + op], at + op
    offset, at = _read_bits(delta, at, op, 4)
    size, at = _read_bits(delta, at, op >> 4, 3)
    size = size or 0x10000
    if offset + size > len(old):
        raise BadDeltaError("copy from beyond the old content")
    return old[offset : offset + size], at


def _read_bits(delta: bytes, at: int, present: int, count: int) -> tuple[int, int]:
    value = 0
    for index in range(count):
        if present >> index & 1:
            value |= delta[at] << 8 * index
            at += 1
    return value, at
