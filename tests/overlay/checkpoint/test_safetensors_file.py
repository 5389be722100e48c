# SPDX-License-Identifier: Apache-2.0
"""Safetensors files: the official reader and writer agree, damage is found and named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file

from mxflux.checkpoint.errors import CheckpointError
from mxflux.checkpoint.safetensors_file import (
    DTYPES,
    SafetensorsFile,
    TensorInfo,
    storage_order,
    write_safetensors,
)

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor


def tensors() -> dict[str, Tensor]:
    out = {}
    for number, (name, dtype) in enumerate(DTYPES.items()):
        raw = torch.arange(3 * dtype.itemsize, dtype=torch.uint8) % 2
        out[name.lower()] = raw.view(dtype).view(3, 1) if number % 2 else raw.view(dtype)
    out["scalar"] = torch.tensor(2.5)
    out["empty"] = torch.empty(0, 4)
    return out


def infos(state: dict[str, Tensor]) -> dict[str, TensorInfo]:
    return {name: TensorInfo(tuple(t.shape), t.dtype) for name, t in state.items()}


def write(path: Path, state: dict[str, Tensor]) -> None:
    order = storage_order(infos(state))
    write_safetensors(path, infos(state), [(name, state[name]) for name in order], {"a": "b"})


def equal(a: Tensor, b: Tensor) -> bool:
    same_bytes = torch.equal(
        a.contiguous().view(-1).view(torch.uint8), b.view(-1).view(torch.uint8)
    )
    return same_bytes and a.shape == b.shape and a.dtype == b.dtype


def test_official_library_reads_what_is_written(tmp_path: Path) -> None:
    write(tmp_path / "a.safetensors", tensors())
    official = load_file(tmp_path / "a.safetensors")
    assert official.keys() == tensors().keys()
    assert all(equal(official[name], tensor) for name, tensor in tensors().items())


def test_what_the_official_library_writes_is_read(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "a.safetensors", metadata={"k": "v"})
    file = SafetensorsFile(tmp_path / "a.safetensors")
    assert file.metadata == {"k": "v"}
    assert all(equal(file.load(name), tensor) for name, tensor in tensors().items())


def damage(path: Path, kind: str) -> None:
    data = path.read_bytes()
    changed = {
        "truncated": data[:-1],
        "longer": data + b"\0",
        "header": data[:20],
        "short": data[:3],
        "not json": data[:8] + b"?" + data[9:],
        "dtype": data.replace(b'"BF16"', b'"BF61"'),
        "size": data.replace(b'"shape":[3]', b'"shape":[4]', 1),
    }
    path.write_bytes(changed[kind])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("truncated", "truncated: .* bytes"),
        ("longer", "has bytes after its data"),
        ("header", "truncated inside its header"),
        ("short", "not a safetensors file|truncated"),
        ("not json", "header is not JSON"),
        ("dtype", "tensor bf16: bad entry"),
        ("size", "bytes for"),
    ],
)
def test_damage_is_named(tmp_path: Path, kind: str, message: str) -> None:
    path = tmp_path / "a.safetensors"
    write(path, tensors())
    damage(path, kind)
    with pytest.raises(CheckpointError, match=f"{path}: .*({message})|{path}: ({message})"):
        SafetensorsFile(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="No such file"):
        SafetensorsFile(tmp_path / "none.safetensors")


def test_writer_refuses_what_was_not_announced(tmp_path: Path) -> None:
    announced = {"a": TensorInfo((2,), torch.float32)}
    with pytest.raises(ValueError, match="announced a"):
        write_safetensors(tmp_path / "x", announced, [("a", torch.zeros(3))])
