# SPDX-License-Identifier: Apache-2.0
"""The stored pieces of a torch_dist checkpoint: which tensor each byte of its files belongs to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .manifest import ChunkRecord, FileRecord
from .metadata_file import read_metadata_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from torch.distributed.checkpoint.metadata import Metadata

Described = dict[str, tuple[FileRecord, list[ChunkRecord]]]
_BLOCK = 1 << 22


@dataclass(frozen=True)
class Chunk:
    """Where a piece of a tensor (or a pickled object) is stored."""

    name: str
    offset: int
    length: int


def chunks_by_file(metadata: Metadata) -> dict[str, list[Chunk]]:
    """File name -> its pieces, in the order of storage."""
    files: dict[str, list[Chunk]] = {}
    for index, info in (metadata.storage_data or {}).items():
        place = Chunk(index.fqn, info.offset, info.length)
        files.setdefault(info.relative_path, []).append(place)
    return {name: sorted(found, key=lambda c: c.offset) for name, found in sorted(files.items())}


def describe_folder(folder: Path, names: Iterable[str] | None = None) -> Described:
    """Records of the files of a torch_dist folder (or of some) and of the pieces in each."""
    pieces = chunks_by_file(read_metadata_file(folder))
    files = sorted(names or (file.name for file in folder.iterdir()))
    return {name: describe_chunks(folder / name, pieces.get(name, [])) for name in files}


def describe_chunks(path: Path, chunks: list[Chunk]) -> tuple[FileRecord, list[ChunkRecord]]:
    """Records of a file and of its pieces, in one pass over the file."""
    whole = hashlib.sha256()
    records: list[ChunkRecord] = []
    with path.open("rb") as file:
        for chunk in chunks:
            for block in _blocks(file, chunk.offset - file.tell()):
                whole.update(block)
            piece = hashlib.sha256()
            for block in _blocks(file, chunk.length):
                whole.update(block)
                piece.update(block)
            records.append(ChunkRecord(chunk.name, chunk.offset, chunk.length, piece.hexdigest()))
        while block := file.read(_BLOCK):
            whole.update(block)
        return FileRecord(file.tell(), whole.hexdigest()), records


def damaged_tensors(path: Path, records: list[ChunkRecord]) -> list[str]:
    """Names whose pieces in a file are not what was recorded, in the order of storage."""
    damaged: dict[str, None] = {}
    with path.open("rb") as file:
        for record in records:
            file.seek(record.offset)
            piece = hashlib.sha256()
            read = 0
            for block in _blocks(file, record.length):
                piece.update(block)
                read += len(block)
            if read < record.length or piece.hexdigest() != record.sha256:
                damaged[record.name] = None
    return list(damaged)


def _blocks(file: BinaryIO, length: int) -> Iterator[bytes]:
    while length > 0 and (block := file.read(min(length, _BLOCK))):
        length -= len(block)
        yield block
