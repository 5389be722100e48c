# SPDX-License-Identifier: Apache-2.0
"""Writing a pre-encoded Energon data set: shards, index and metadata, published in one step."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mxflux.checkpoint.publish import published_folder, require_absent
from mxflux.training.cfg_dropout import CLIP_FILE, FOLDER, T5_FILE, EmptyEncodings

from .energon_dataset import require_energon
from .errors import DataError
from .parts import PART_NAMES, PREENCODED, SIDECAR, encode_part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

META = ".nv-meta"
DESCRIPTION = "mxflux.json"
"""In the metadata folder: which encoder made the data set, and the shapes in it."""
_BAD_KEY_CHARACTERS = "./\\"


@dataclass
class DatasetWriter:
    """Writes samples of one or two splits into shards of at most ``shard_size`` samples.

    Shards are called SPLIT-NNNNN.tar. The same samples give the same bytes.
    """

    folder: Path
    encoding: str = PREENCODED
    shard_size: int = 1000
    counts: dict[str, int] = field(default_factory=dict)
    _keys: set[str] = field(default_factory=set)
    _open: dict[str, tarfile.TarFile] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def add(
        self, split: str, key: str, tensors: Mapping[str, Tensor], sidecar: Mapping[str, Any]
    ) -> None:
        """Append a sample; raises DataError for a key that is taken or has a dot or slash."""
        if key in self._keys:
            raise DataError(f"two samples have the key {key!r}")
        if not key or any(character in key for character in _BAD_KEY_CHARACTERS):
            raise DataError(f"a sample key must have no dot and no slash, got {key!r}")
        self._keys.add(key)
        tar = self._shard(split)
        names = PART_NAMES[self.encoding]
        for name, tensor in tensors.items():
            _member(tar, f"{key}.{names[name]}", encode_part(names[name], tensor))
        if sidecar:
            text = json.dumps(dict(sidecar), sort_keys=True, ensure_ascii=False)
            _member(tar, f"{key}.{SIDECAR}", text.encode())
        self.counts[self._names[split]] += 1

    def close(self) -> None:
        """Finish the open shards."""
        for tar in self._open.values():
            tar.close()
        self._open.clear()

    def _shard(self, split: str) -> tarfile.TarFile:
        name = self._names.get(split)
        if name is not None and self.counts[name] < self.shard_size:
            return self._open[split]
        if name is not None:
            self._open.pop(split).close()
        number = sum(known.startswith(f"{split}-") for known in self.counts)
        name = f"{split}-{number:05d}.tar"
        self._names[split] = name
        self.counts[name] = 0
        self._open[split] = tarfile.open(self.folder / name, "x", format=tarfile.USTAR_FORMAT)  # noqa: SIM115  closed by close()
        return self._open[split]


@contextlib.contextmanager
def new_dataset(
    destination: Path,
    *,
    empty: EmptyEncodings | None,
    description: Mapping[str, Any],
    encoding: str = PREENCODED,
    shard_size: int = 1000,
) -> Iterator[DatasetWriter]:
    """A writer whose data set appears at ``destination`` when the block succeeds, else not at all.

    Raises FileExistsError when something is there, DataError when nothing was written.
    """
    if shard_size < 1:
        raise DataError(f"shard size {shard_size} must be positive")
    require_absent(destination)
    require_energon()  # its index comes last: not after hours of encoding
    with published_folder(destination) as folder:
        writer = DatasetWriter(folder, encoding, shard_size)
        try:
            yield writer
        finally:
            writer.close()
        if not writer.counts:
            raise DataError(f"{destination}: there is no sample to write")
        if empty is not None:
            write_empty_encodings(folder / FOLDER, empty)
        _write_metadata(folder, writer, description)


def write_empty_encodings(folder: Path, empty: EmptyEncodings) -> None:
    """Write t5_empty.npy [1,S,D] and clip_empty.npy [1,D'] in fp32."""
    folder.mkdir()
    for name, tensor in ((T5_FILE, empty.t5), (CLIP_FILE, empty.clip)):
        np.save(folder / name, tensor.float().numpy(), allow_pickle=False)


def _write_metadata(folder: Path, writer: DatasetWriter, description: Mapping[str, Any]) -> None:
    from megatron.energon.flavors.webdataset.prepare import WebdatasetPreparator

    shards = sorted(writer.counts)
    splits = sorted({name.rsplit("-", 1)[0] for name in shards})
    with contextlib.redirect_stdout(sys.stderr):
        WebdatasetPreparator.prepare_dataset(
            folder,
            shards,
            split_parts_patterns=[(split, f"{split}-[0-9]*\\.tar") for split in splits],
            shuffle_seed=None,
            workers=1,
        )
    _require_indexed(folder, writer.counts)
    flavour = (
        "__module__: megatron.energon\n__class__: CrudeWebdataset\n"
        f"subflavors:\n  encoding: {writer.encoding}\n"
    )
    (folder / META / "dataset.yaml").write_text(flavour, encoding="utf-8")
    text = json.dumps({"format": 1, **description}, indent=1, sort_keys=True)
    (folder / META / DESCRIPTION).write_text(text + "\n", encoding="utf-8")


def _require_indexed(folder: Path, counts: Mapping[str, int]) -> None:
    """Energon logs a shard that it could not read and goes on: compare what it counted."""
    info = json.loads((folder / META / ".info.json").read_text(encoding="utf-8"))
    if info["shard_counts"] != dict(counts):
        raise DataError(f"Energon counted {info['shard_counts']}, written were {dict(counts)}")


def read_description(folder: Path) -> dict[str, Any]:
    """What made a data set; empty when something else did. Raises DataError for a broken file."""
    path = folder / META / DESCRIPTION
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: not JSON ({error})") from error
    if not isinstance(values, dict) or values.get("format") != 1:
        raise DataError(f"{path}: format {values!r}, this release reads format 1")
    return values


def _member(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)  # time, owner and mode at their constants: bytes never vary
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
