# SPDX-License-Identifier: Apache-2.0
"""Columns of plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: AbstractSet[int] = frozenset()
) -> list[str]:
    """Lines with columns as wide as their widest cell; those in ``right`` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
