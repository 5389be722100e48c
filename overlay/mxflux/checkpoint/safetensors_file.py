# SPDX-License-Identifier: Apache-2.0
"""Safetensors files, read lazily and written tensor by tensor.

Format: 8 bytes little-endian header length, JSON header, raw tensors
(https://github.com/safetensors/safetensors, "Format").
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from .errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from torch import Tensor

DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_MAX_HEADER = 100_000_000
_ALIGNMENT = 8


@dataclass(frozen=True)
class TensorInfo:
    """Shape and dtype of a stored tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Size of its raw data."""
        return prod(self.shape) * self.dtype.itemsize


class SafetensorsFile:
    """One file, checked when opened: header, dtypes, and that the data fill the file exactly.

    Raises CheckpointError naming the file when it is truncated, too long or malformed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset, header = self._read_header()
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        self._spans: dict[str, tuple[int, int]] = {}
        self.tensors: dict[str, TensorInfo] = {}
        for name, entry in header.items():
            self._add(name, entry)
        self._check_extent()
        self._bytes: Tensor | None = None

    def load(self, name: str) -> Tensor:
        """The tensor, mapped from the file: pages are read when they are touched."""
        if self._bytes is None:
            size = self.path.stat().st_size
            self._bytes = torch.from_file(
                str(self.path), shared=False, size=size, dtype=torch.uint8
            )
        start, stop = (self._offset + position for position in self._spans[name])
        info = self.tensors[name]
        raw = self._bytes[start:stop]
        if start % info.dtype.itemsize:
            raw = raw.clone()
        return raw.view(info.dtype).view(info.shape)

    def _read_header(self) -> tuple[int, dict[str, Any]]:
        try:
            with self.path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                raw = file.read(min(length, _MAX_HEADER))
        except OSError as error:
            raise CheckpointError(f"{self.path}: {error.strerror}") from error
        if length > _MAX_HEADER or len(raw) < length:
            raise CheckpointError(
                f"{self.path}: not a safetensors file, or truncated inside its header"
            )
        try:
            header = json.loads(raw)
        except ValueError as error:
            raise CheckpointError(f"{self.path}: the header is not JSON ({error})") from error
        return 8 + length, header

    def _add(self, name: str, entry: dict[str, Any]) -> None:
        try:
            dtype = DTYPES[entry["dtype"]]
            info = TensorInfo(tuple(entry["shape"]), dtype)
            start, stop = entry["data_offsets"]
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{self.path}: tensor {name}: bad entry {entry!r}") from error
        if stop - start != info.nbytes:
            raise CheckpointError(
                f"{self.path}: tensor {name}: {stop - start} bytes for {info.shape} {dtype}"
            )
        self.tensors[name] = info
        self._spans[name] = (start, stop)

    def _check_extent(self) -> None:
        position = 0
        for start, stop in sorted(self._spans.values()):
            if start != position:
                raise CheckpointError(f"{self.path}: hole or overlap at data byte {position}")
            position = stop
        size = self.path.stat().st_size
        if size != self._offset + position:
            kind = "truncated" if size < self._offset + position else "has bytes after its data"
            lost = [n for n, (_, stop) in self._spans.items() if self._offset + stop > size]
            raise CheckpointError(
                f"{self.path}: {kind}: {size} bytes, the header says {self._offset + position}"
                + (f"; incomplete: {', '.join(lost)}" if lost else "")
            )


def storage_order(tensors: dict[str, TensorInfo]) -> list[str]:
    """Names in the order of storage: wide dtypes first, so that every tensor is aligned."""
    return sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)


def write_safetensors(
    path: Path,
    tensors: dict[str, TensorInfo],
    data: Iterable[tuple[str, Tensor]],
    metadata: dict[str, str] | None = None,
) -> None:
    """Write a file whose tensors arrive one at a time, in :func:`storage_order`; fsync it.

    Raises ValueError when a tensor arrives out of order or does not match its announced form.
    """
    order = storage_order(tensors)
    with path.open("xb") as file:
        file.write(_header(tensors, order, metadata or {}))
        for expected, (name, tensor) in zip(order, data, strict=True):
            info = TensorInfo(tuple(tensor.shape), tensor.dtype)
            if name != expected or info != tensors[expected]:
                raise ValueError(
                    f"announced {expected} {tensors[expected]}, received {name} {info}"
                )
            file.write(raw_bytes(tensor))
        file.flush()
        os.fsync(file.fileno())


def raw_bytes(tensor: Tensor) -> memoryview:
    """The little-endian bytes of a tensor in row-major order."""
    flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
    return memoryview(flat.numpy())


def _header(tensors: dict[str, TensorInfo], order: list[str], metadata: dict[str, str]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    entries.update(_entries(tensors, order))
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _entries(
    tensors: dict[str, TensorInfo], order: list[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    position = 0
    for name in order:
        info = tensors[name]
        end = position + info.nbytes
        yield (
            name,
            {
                "dtype": DTYPE_NAMES[info.dtype],
                "shape": list(info.shape),
                "data_offsets": [position, end],
            },
        )
        position = end
