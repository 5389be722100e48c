# SPDX-License-Identifier: Apache-2.0
"""Launches the Triton packers: buffers, grid, a fixed table of tiles. Nothing is tuned here."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from mxflux.mx.blob import blob_shapes
from mxflux.mx.kernels.packers import mx_pack_kernel
from mxflux.mx.layouts import A6W6_COLS, A6W6_GUARD, A6W6_ROWS, AITER_A6W6, ceil_to
from mxflux.mx.spec import QuantSpec

if TYPE_CHECKING:
    from mxflux.mx.packers import Packed

Tile = tuple[int, int, int]

#: Backend and kind of packing -> BLOCK_M, BLOCK_N, warps. Rows: wide, for long runs of codes and
#: scales. Columns: 128 rows, so that a column's codes fill whole 32-byte sectors. A square needs
#: its 32 rows in one tile.
TILES: dict[str, dict[str, Tile]] = {
    "cuda": {
        "row": (4, 1024, 4),
        "row, square": (32, 128, 4),
        "column": (128, 64, 4),
        "dual": (128, 64, 4),
    },
    "hip": {
        "row": (16, 512, 4),
        "row, square": (32, 256, 4),
        "column": (128, 64, 4),
        "dual": (128, 64, 4),
    },
}
_OFF = QuantSpec()


def tile(row: str, col: str, backend: str | None = None) -> Tile:
    """BLOCK_M, BLOCK_N and warps for two spec texts; backend: cuda, hip, or this torch's."""
    if backend is None:
        backend = "cuda" if torch.version.hip is None else "hip"
    if col:
        return TILES[backend]["dual" if row else "column"]
    return TILES[backend]["row, square" if QuantSpec.parse(row).block_2d else "row"]


def constants(row: str, col: str) -> dict[str, Any]:
    """The constexpr arguments that two spec texts stand for."""
    out: dict[str, Any] = {}
    for prefix, text in (("ROW", row), ("COL", col)):
        spec = QuantSpec.parse(text) if text else _OFF
        out |= {
            prefix: bool(text),
            f"{prefix}_FMT": spec.format,
            f"{prefix}_MODE": spec.scale_mode,
            f"{prefix}_HADAMARD": spec.hadamard,
            f"{prefix}_STOCHASTIC": spec.stochastic,
            f"{prefix}_BLOCK_2D": spec.block_2d,
            f"{prefix}_LAYOUT": spec.layout,
        }
    return out


def covered(rows: int, k: int, text: str) -> tuple[int, int]:
    """Rows and columns a blob's programs must cover, padding included."""
    if not text:
        return 0, 0
    layout = QuantSpec.parse(text).layout
    if layout == AITER_A6W6:
        return ceil_to(rows, 256), ceil_to(k, 128)
    if layout.startswith("aiter_a4w4"):
        return ceil_to(rows, 256), ceil_to(k, 256)
    return rows, ceil_to(k, 32)


@dataclass(frozen=True)
class Geometry:
    """What a launch needs that depends on shape, strides and specs only."""

    grid: tuple[int]
    tiles_n: int
    keywords: dict[str, Any]
    shapes: tuple[tuple[int, ...], ...]


@functools.lru_cache(maxsize=4096)
def geometry(
    m: int, n: int, strides: tuple[int, ...], row: str, col: str, tiling: Tile
) -> Geometry:
    """Grid, constexpr arguments and buffer shapes for x (M, N); kept: a step repeats them."""
    block_m, block_n, warps = tiling
    (row_m, row_n), (col_n, col_m) = covered(m, n, row), covered(n, m, col)
    tiles_m, tiles_n = -(-max(row_m, col_m) // block_m), -(-max(row_n, col_n) // block_n)
    keywords = constants(row, col) | {
        "EVEN": (m, n) == (tiles_m * block_m, tiles_n * block_n),
        "WIDE": block_m * strides[0] + block_n * strides[1] >= 1 << 31,
        "LONG": tiles_m * block_m * tiles_n * block_n >= 1 << 31,
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "num_warps": warps,
        # A rotation's first product fused into its sum would round fp32 subnormals differently.
        "enable_fp_fusion": False,
    }
    shapes = (*blob_shapes(m, n, row), *blob_shapes(n, m, col))
    return Geometry((tiles_m * tiles_n,), tiles_n, keywords, shapes)


def clear_guard(blobs: tuple[torch.Tensor, ...], rows: int, k: int, text: str) -> None:
    """Zero the two guard tiles of each row of A6W6 tiles: no program writes them."""
    if not text or QuantSpec.parse(text).layout != AITER_A6W6 or rows == 0:
        return
    down, across = -(-rows // A6W6_ROWS), -(-k // A6W6_COLS) + A6W6_GUARD
    for blob in blobs:
        blob.view(down, across, -1)[:, -A6W6_GUARD:] = 0


def units(data: torch.Tensor, text: str) -> torch.Tensor:
    """The data of a blob as the units that the kernel writes: FP4 32 bits, else 64."""
    if not text:
        return data
    return data.view(torch.int32 if QuantSpec.parse(text).format == "e2m1" else torch.int64)


@dataclass(frozen=True)
class Launch:
    """One launch of `mx_pack_kernel` and the buffers it fills."""

    grid: tuple[int]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    buffers: Packed


def plan(
    x: torch.Tensor,
    rng: torch.Tensor | None,
    row: str,
    col: str,
    backend: str | None = None,
    tiling: Tile | None = None,
) -> Launch:
    """What packing x (M, N) launches; tiling: instead of `tile`'s. Works on meta tensors."""
    m, n = x.shape
    fixed = geometry(m, n, x.stride(), row, col, tiling or tile(row, col, backend))
    data, scale, data_t, scale_t = (
        torch.empty(shape, dtype=torch.uint8, device=x.device) for shape in fixed.shapes
    )
    clear_guard((data, scale), m, n, row)
    clear_guard((data_t, scale_t), n, m, col)
    arguments = (
        x,
        units(data, row),
        scale,
        units(data_t, col),
        scale_t,
        None if rng is None else rng.to(x.device),
        m,
        n,
        *x.stride(),
        fixed.tiles_n,
    )
    return Launch(fixed.grid, arguments, fixed.keywords, (data, scale, data_t, scale_t))


def pack(x: torch.Tensor, rng: torch.Tensor | None, row: str, col: str) -> Packed:
    """x (M, N) -> row data, row scale, column data, column scale, in one launch."""
    launch = plan(x.detach(), rng, row, col)
    if x.numel() == 0:
        for buffer in launch.buffers:
            buffer.zero_()
        return launch.buffers
    with torch.cuda.device_of(x):
        mx_pack_kernel[launch.grid](*launch.arguments, **launch.keywords)
    return launch.buffers
