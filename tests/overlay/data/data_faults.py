# SPDX-License-Identifier: Apache-2.0
"""Data sets with one fault each, made from a good one."""

from __future__ import annotations

import io
import shutil
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Members = list[tuple[str, bytes]]


def copy_of(dataset: Path, folder: Path) -> Path:
    """A copy that may be damaged."""
    return shutil.copytree(dataset, folder / "damaged")


def members(shard: Path) -> Members:
    """Names and bytes of a shard."""
    with tarfile.open(shard) as tar:
        return [(item.name, tar.extractfile(item).read()) for item in tar]  # type: ignore[union-attr]


def rewrite(shard: Path, change: Callable[[Members], Members]) -> None:
    """Write the shard anew with changed members, and Energon's index with it."""
    changed = change(members(shard))
    offsets, last = [], None
    with tarfile.open(shard, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in changed:
            if name.split(".")[0] != last:
                offsets.append(tar.offset)
                last = name.split(".")[0]
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        offsets.append(tar.offset)
    index = b"".join(offset.to_bytes(8, "little") for offset in offsets)
    shard.with_suffix(".tar.idx").write_bytes(index)


def without(part: str) -> Callable[[Members], Members]:
    """Drop one member."""
    return lambda found: [item for item in found if item[0] != part]


def replaced(part: str, data: bytes) -> Callable[[Members], Members]:
    """Other bytes in one member."""
    return lambda found: [(name, data if name == part else old) for name, old in found]
