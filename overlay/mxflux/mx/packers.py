# SPDX-License-Identifier: Apache-2.0
"""Which packer runs: the torch reference anywhere, Triton on a GPU. Their bytes are equal."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

import torch

from mxflux.mx import reference
from mxflux.mx.blob import padded_length
from mxflux.mx.errors import MXUnavailableError, MXValueError
from mxflux.mx.layouts import layout_named
from mxflux.mx.spec import QuantSpec

if TYPE_CHECKING:
    from collections.abc import Callable

Packed = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
ROW_STREAM, COLUMN_STREAM = 0, 1


def _pack_rows(
    x: torch.Tensor, rng: torch.Tensor | None, text: str, stream: int
) -> tuple[torch.Tensor, torch.Tensor]:
    if not text:
        empty = x.new_empty(0, dtype=torch.uint8)
        return empty, empty.clone()
    spec = QuantSpec.parse(text)
    rows, k = x.shape
    layout, stored = layout_named(spec.layout), padded_length(k, spec.layout)
    whole_rows = -(-rows // 32) * 32 if spec.block_2d else rows
    padded = torch.nn.functional.pad(x, (0, stored - k, 0, whole_rows - rows))
    codes, scales = reference.quantize(
        padded,
        spec.element,
        spec.mode,
        hadamard=spec.hadamard,
        block_2d=spec.block_2d,
        rng=rng if spec.stochastic else None,
        stream=stream,
    )
    return layout.pack(codes[:rows], scales[:rows], spec.element)


def reference_pack(x: torch.Tensor, rng: torch.Tensor | None, row: str, col: str) -> Packed:
    """The definition: `reference.quantize`, then the layout. Any device, no speed."""
    with torch.no_grad():
        data, scale = _pack_rows(x, rng, row, ROW_STREAM)
        data_t, scale_t = _pack_rows(x.t(), rng, col, COLUMN_STREAM)
    return data, scale, data_t, scale_t


def triton_pack(x: torch.Tensor, rng: torch.Tensor | None, row: str, col: str) -> Packed:
    """One Triton launch, see `mxflux.mx.triton_packers`."""
    from mxflux.mx.triton_packers import pack

    return pack(x, rng, row, col)


PACKERS: dict[str, Callable[[torch.Tensor, torch.Tensor | None, str, str], Packed]] = {
    "reference": reference_pack,
    "triton": triton_pack,
}


def triton_missing(device: torch.device) -> str | None:
    """Why the Triton packers cannot run on `device`; None when they can."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        return None
    return f"triton needs a GPU tensor (or TRITON_INTERPRET=1), got one on {device}"


def choose(packer: str, x: torch.Tensor) -> str:
    """`auto` means triton where it can run, else the reference. A named one runs or raises."""
    if packer not in (*PACKERS, "auto"):
        raise MXValueError(f"unknown packer {packer!r}; valid: auto, {', '.join(PACKERS)}")
    if packer == "reference":
        return packer
    missing = triton_missing(x.device)
    if packer == "auto":
        # On the CPU the interpreter is a test tool, thousands of times slower: never by default.
        return "triton" if missing is None and x.device.type == "cuda" else "reference"
    if missing is not None:
        raise MXUnavailableError(f"packer 'triton': {missing}")
    return packer
