# SPDX-License-Identifier: Apache-2.0
"""The .metadata pickle: read without Megatron, and never trusted."""

from __future__ import annotations

import os
import pickle
import sys
import types
from typing import TYPE_CHECKING

import pytest
import torch
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex

from mxflux.checkpoint.chunks import ChunkRecord, chunks_by_file, damaged_tensors, describe_folder
from mxflux.checkpoint.dcp import write_distributed
from mxflux.checkpoint.errors import CheckpointError
from mxflux.checkpoint.metadata_file import METADATA, read_metadata_file
from mxflux.checkpoint.safetensors_file import TensorInfo

if TYPE_CHECKING:
    from pathlib import Path

VALUES = {"a": torch.arange(6.0).view(2, 3), "b": torch.full((4,), 7, dtype=torch.bfloat16)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint"
    infos = {name: TensorInfo(tuple(t.shape), t.dtype) for name, t in VALUES.items()}
    write_distributed(path, infos, VALUES.__getitem__)
    return path


class Evil:
    """A pickle that would run a command."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def test_code_in_the_pickle_is_not_run(folder: Path) -> None:
    (folder / METADATA).write_bytes(pickle.dumps(Evil()))
    with pytest.raises(CheckpointError, match=r"it names (posix|nt).system, which no checkpoint"):
        read_metadata_file(folder)


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"no pickle", pickle.dumps([1]), pickle.dumps(torch.Size([1]))]
)
def test_what_is_no_metadata_is_refused(folder: Path, data: bytes) -> None:
    (folder / METADATA).write_bytes(data)
    with pytest.raises(CheckpointError, match="metadata"):
        read_metadata_file(folder)
    (folder / METADATA).unlink()
    with pytest.raises(CheckpointError, match=r"no readable .metadata"):
        read_metadata_file(folder)


def test_every_flipped_byte_is_an_error_or_harmless(folder: Path) -> None:
    """Whatever is damaged, the reader never raises anything but CheckpointError."""
    original = (folder / METADATA).read_bytes()
    refused = 0
    for place in range(0, len(original), 7):
        changed = bytearray(original)
        changed[place] ^= 0x55
        (folder / METADATA).write_bytes(changed)
        try:
            read_metadata_file(folder)
        except CheckpointError:
            refused += 1
    assert refused > len(original) // 7 // 4


def test_classes_of_megatron_are_not_needed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Megatron pickles a Metadata of its own, with save plans that no reader here wants."""
    name = "megatron.core.dist_checkpointing.strategies.torch"
    module = types.ModuleType(name)
    for parent in ("megatron", "megatron.core", "megatron.core.dist_checkpointing", name):
        monkeypatch.setitem(sys.modules, parent, sys.modules.get(parent) or module)
    plan = type("MCoreSavePlan", (), {"__module__": name})
    metadata = type("MCoreMetadata", (Metadata,), {"__module__": name})
    monkeypatch.setitem(sys.modules, name, module)
    module.MCoreSavePlan, module.MCoreMetadata = plan, metadata  # type: ignore[attr-defined]
    plain = read_metadata_file(folder)
    theirs = metadata(plain.state_dict_metadata, None, plain.storage_data)
    theirs.all_local_plans = [plan()]
    (folder / METADATA).write_bytes(pickle.dumps(theirs))
    for parent in list(sys.modules):
        if parent.split(".")[0] == "megatron":
            monkeypatch.setitem(sys.modules, parent, None)
    read = read_metadata_file(folder)
    assert chunks_by_file(read) == chunks_by_file(plain)


def test_pieces_cover_every_tensor_and_tell_whose_bytes_changed(folder: Path) -> None:
    described = describe_folder(folder)
    ((data, pieces),) = [(name, p) for name, (_, p) in described.items() if p]
    assert [piece.name for piece in pieces] == ["a", "b"]
    assert damaged_tensors(folder / data, pieces) == []
    content = bytearray((folder / data).read_bytes())
    content[pieces[1].offset] ^= 1
    (folder / data).write_bytes(content)
    assert damaged_tensors(folder / data, pieces) == ["b"]
    (folder / data).write_bytes(content[: pieces[0].offset + 1])
    assert damaged_tensors(folder / data, pieces) == ["a", "b"]
    assert damaged_tensors(folder / data, [ChunkRecord("c", 10**9, 1, "0" * 64)]) == ["c"]


def test_index_of_the_written_chunks(folder: Path) -> None:
    stored = read_metadata_file(folder).storage_data
    assert {index.fqn for index in stored} == {"a", "b"}
    assert all(isinstance(index, MetadataIndex) for index in stored)
