# SPDX-License-Identifier: Apache-2.0
"""The manifest of a checkpoint: each tensor's shape, dtype and SHA-256, each file's SHA-256."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import CheckpointError
from .safetensors_file import DTYPE_NAMES, raw_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

MANIFEST_NAME = "mxflux_manifest.json"
FORMAT_VERSION = 1
_BLOCK = 1 << 22
_DIGEST = "sha256"


@dataclass(frozen=True)
class TensorRecord:
    """One tensor: SHA-256 of its little-endian row-major bytes.

    None where a run saved it in shards: their files have hashes, the whole was in no one's hands.
    """

    shape: list[int]
    dtype: str
    sha256: str | None


@dataclass(frozen=True)
class FileRecord:
    """One file of the checkpoint."""

    size: int
    sha256: str


@dataclass(frozen=True)
class ChunkRecord:
    """A piece of a tensor, or a pickled object, in a file: SHA-256 of its stored bytes."""

    name: str
    offset: int
    length: int
    sha256: str


@dataclass
class Manifest:
    """What a checkpoint holds."""

    layout: str
    architecture: dict[str, Any]
    tensors: dict[str, TensorRecord] = field(default_factory=dict)
    files: dict[str, FileRecord] = field(default_factory=dict)
    chunks: dict[str, list[ChunkRecord]] = field(default_factory=dict)
    """File -> its pieces, in the order of storage; of checkpoints that ranks wrote together."""
    training: dict[str, Any] | None = None
    """What :class:`~mxflux.checkpoint.training_record.TrainingRecord` tells; None: weights only."""
    format_version: int = FORMAT_VERSION

    def add(self, name: str, tensor: Tensor) -> None:
        """Record a tensor."""
        self.tensors[name] = describe(tensor)

    def write(self, path: Path) -> None:
        """Write as JSON with sorted keys, and fsync."""
        values = asdict(self)
        with path.open("x", encoding="utf-8") as file:
            json.dump({**values, _DIGEST: manifest_digest(values)}, file, indent=1, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())


def describe(tensor: Tensor) -> TensorRecord:
    """Record of a tensor's shape, dtype and bytes."""
    digest = hashlib.sha256(raw_bytes(tensor)).hexdigest()
    return TensorRecord(list(tensor.shape), DTYPE_NAMES[tensor.dtype], digest)


def describe_file(path: Path) -> FileRecord:
    """Record of a file's size and bytes."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256") if hasattr(hashlib, "file_digest") else None
        if digest is None:
            digest = hashlib.sha256()
            while block := file.read(_BLOCK):
                digest.update(block)
    return FileRecord(path.stat().st_size, digest.hexdigest())


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises CheckpointError naming the file when it is missing, malformed, of a later format, or
    not what was written (it carries the SHA-256 of its own contents).
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["format_version"] != FORMAT_VERSION:
            raise CheckpointError(
                f"{path}: format {values['format_version']}, this release reads {FORMAT_VERSION}"
            )
        recorded = values.pop(_DIGEST)
        if recorded != manifest_digest(values):
            raise CheckpointError(f"{path}: contents changed (SHA-256 differs)")
        return _parsed(values)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: there is no manifest, nothing can be verified") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path}: not a manifest ({error!r})") from error


def _parsed(values: dict[str, Any]) -> Manifest:
    return Manifest(
        layout=values["layout"],
        architecture=values["architecture"],
        tensors={name: TensorRecord(**value) for name, value in values["tensors"].items()},
        files={name: FileRecord(**value) for name, value in values["files"].items()},
        chunks={
            name: [ChunkRecord(**value) for value in records]
            for name, records in values.get("chunks", {}).items()
        },
        training=values.get("training"),
    )


def manifest_digest(values: dict[str, Any]) -> str:
    """SHA-256 of the values of a manifest, without the digest itself."""
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
