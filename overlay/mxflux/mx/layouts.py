# SPDX-License-Identifier: Apache-2.0
"""Named, versioned packing layouts: where the bytes of a blob's codes and scales lie.

A blob is a logical matrix (R, K) contracted along K. Layouts take codes (R, K) and scales
(R, K / 32), both uint8, and give two uint8 tensors; `unpack` is the exact inverse. A layout never
changes values. What it pads it fills with zeros, and readers ignore it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mxflux.mx.codes import pack_codes, unpack_codes
from mxflux.mx.errors import MXValueError
from mxflux.mx.formats import BLOCK, ElementFormat

PLAIN = "plain.v1"
AITER_A4W4_A = "aiter_a4w4_a.v1"
AITER_A4W4_B = "aiter_a4w4_b.v1"
AITER_A6W6 = "aiter_a6w6.v1"

A6W6_ROWS, A6W6_COLS, A6W6_GUARD = 256, 128, 2
A6W6_DATA, A6W6_SCALE = 24576, 1024
#: Bytes of the first plane of an A6W6 tile: 16 of the 24 of each block; the other 8 follow.
A6W6_PLANE = 16384


def ceil_to(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `value`."""
    return -(-value // multiple) * multiple


@dataclass(frozen=True)
class Layout:
    """One packing layout. Subclasses know the shapes and the byte order.

    formats: names of the elements it holds (empty: all). row_multiple, col_multiple: what R and K
    must be multiples of, for the backend that reads it; `check_shape` refuses anything else.
    """

    name: str
    formats: tuple[str, ...] = ()
    row_multiple: int = 1
    col_multiple: int = BLOCK

    def check_format(self, fmt: ElementFormat) -> None:
        """Raise MXValueError unless the layout holds this element format."""
        if self.formats and fmt.name not in self.formats:
            held = ", ".join(self.formats)
            raise MXValueError(f"layout {self.name} holds {held}, not {fmt.name}")

    def check_shape(self, rows: int, cols: int) -> None:
        """Raise MXValueError unless a blob (rows, cols) fits, naming shape and rule."""
        if cols % self.col_multiple:
            raise MXValueError(
                f"layout {self.name}: shape ({rows}, {cols}): "
                f"K = {cols} must be a multiple of {self.col_multiple}"
            )
        if rows % self.row_multiple:
            raise MXValueError(
                f"layout {self.name}: shape ({rows}, {cols}): "
                f"{rows} rows must be a multiple of {self.row_multiple}"
            )

    def data_shape(self, rows: int, cols: int, fmt: ElementFormat) -> tuple[int, ...]:
        """Shape of the uint8 data tensor."""
        return rows, cols * fmt.bits // 8

    def scale_shape(self, rows: int, cols: int) -> tuple[int, ...]:
        """Shape of the uint8 scale tensor."""
        return rows, cols // BLOCK

    def pack(
        self, codes: torch.Tensor, scales: torch.Tensor, fmt: ElementFormat
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes (R, K) and scales (R, K / 32) -> data and scale tensors."""
        self.check_format(fmt)
        self.check_shape(*codes.shape)
        return self._data(pack_codes(codes, fmt.bits)), self._scale(scales)

    def unpack(
        self, data: torch.Tensor, scale: torch.Tensor, rows: int, cols: int, fmt: ElementFormat
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Data and scale tensors -> codes (R, K) and scales (R, K / 32)."""
        self.check_format(fmt)
        self.check_shape(rows, cols)
        for name, tensor, shape in (
            ("data", data, self.data_shape(rows, cols, fmt)),
            ("scale", scale, self.scale_shape(rows, cols)),
        ):
            if tuple(tensor.shape) != shape or tensor.dtype != torch.uint8:
                raise MXValueError(
                    f"layout {self.name}: {name} of a ({rows}, {cols}) {fmt.name} blob is uint8 "
                    f"{shape}, got {tensor.dtype} {tuple(tensor.shape)}"
                )
        flat = self._data_back(data, rows, cols * fmt.bits // 8)
        return unpack_codes(flat, fmt.bits), self._scale_back(scale, rows, cols // BLOCK)

    def _data(self, packed: torch.Tensor) -> torch.Tensor:
        return packed

    def _scale(self, scales: torch.Tensor) -> torch.Tensor:
        return scales.contiguous()

    def _data_back(self, data: torch.Tensor, rows: int, size: int) -> torch.Tensor:
        return data.reshape(rows, size)

    def _scale_back(self, scale: torch.Tensor, rows: int, groups: int) -> torch.Tensor:
        return scale.reshape(rows, groups)


def _padded(x: torch.Tensor, rows: int, cols: int) -> torch.Tensor:
    """x (r, c) at the corner of zeros (rows, cols); x itself if it already has that shape."""
    if tuple(x.shape) == (rows, cols):
        return x
    out = x.new_zeros(rows, cols)
    out[: x.shape[0], : x.shape[1]] = x
    return out


@dataclass(frozen=True)
class AiterA4W4(Layout):
    """ROCm/aiter gemm_a4w4: scales shuffled in 256 x 8 tiles; a B operand's data preshuffled.

    Scale (r, g) of the zero-padded matrix lies at [r/32][g/8][g%4][r%16][g%8/4][r%32/16]. With
    `preshuffle`, data byte (r, b) lies at [r/16][b/32][b%32/16][r%16][b%16]: 16 bytes, one block,
    stay together.
    """

    preshuffle: bool = False

    def scale_shape(self, rows: int, cols: int) -> tuple[int, ...]:
        """Rows padded to 256, groups to 8."""
        return ceil_to(rows, 256), ceil_to(cols // BLOCK, 8)

    def _data(self, packed: torch.Tensor) -> torch.Tensor:
        if not self.preshuffle:
            return packed
        rows, size = packed.shape
        tiles = packed.reshape(rows // 16, 16, size // 32, 2, 16)
        return tiles.permute(0, 2, 3, 1, 4).reshape(rows, size)

    def _data_back(self, data: torch.Tensor, rows: int, size: int) -> torch.Tensor:
        if not self.preshuffle:
            return data
        tiles = data.reshape(rows // 16, size // 32, 2, 16, 16)
        return tiles.permute(0, 3, 1, 2, 4).reshape(rows, size)

    def _scale(self, scales: torch.Tensor) -> torch.Tensor:
        rows, groups = ceil_to(scales.shape[0], 256), ceil_to(scales.shape[1], 8)
        tiles = _padded(scales, rows, groups).reshape(rows // 32, 2, 16, groups // 8, 2, 4)
        return tiles.permute(0, 3, 5, 2, 4, 1).reshape(rows, groups)

    def _scale_back(self, scale: torch.Tensor, rows: int, groups: int) -> torch.Tensor:
        full_rows, full_groups = scale.shape
        tiles = scale.reshape(full_rows // 32, full_groups // 8, 4, 16, 2, 2)
        flat = tiles.permute(0, 5, 3, 1, 4, 2).reshape(full_rows, full_groups)
        return flat[:rows, :groups].contiguous()


@dataclass(frozen=True)
class AiterA6W6(Layout):
    """ROCm/aiter gemm_a6w6 (`mxfp6_c0c1_256_padk2`): tiles of 256 rows by K 128, two K tiles more.

    Tiles are ordered row tile first, then K, each row of tiles followed by two guard tiles that are
    addressed but never used. In a tile, block (r, g) of 24 bytes has the number
    r/16*64 + g*16 + r%16; its first 16 bytes lie at 16 * number, its last 8 at 16384 + 8 * number.
    Its scale lies at r/128*512 + g*128 + r%16*8 + r%128/16 of the tile's 1,024 scale bytes.
    """

    @staticmethod
    def tiles(rows: int, cols: int) -> tuple[int, int]:
        """Row tiles and K tiles with the guard."""
        return -(-rows // A6W6_ROWS), -(-cols // A6W6_COLS) + A6W6_GUARD

    def data_shape(self, rows: int, cols: int, fmt: ElementFormat) -> tuple[int, ...]:  # noqa: ARG002 - e2m3 only
        """One dimension: 24,576 bytes a tile."""
        down, across = self.tiles(rows, cols)
        return (down * across * A6W6_DATA,)

    def scale_shape(self, rows: int, cols: int) -> tuple[int, ...]:
        """One dimension: 1,024 bytes a tile."""
        down, across = self.tiles(rows, cols)
        return (down * across * A6W6_SCALE,)

    def _data(self, packed: torch.Tensor) -> torch.Tensor:
        rows, size = packed.shape
        down, across = self.tiles(rows, size // 24 * BLOCK)
        full = _padded(packed, down * A6W6_ROWS, (across - A6W6_GUARD) * 96)
        blocks = full.reshape(down, 16, 16, across - A6W6_GUARD, 4, 24).permute(0, 3, 1, 4, 2, 5)
        out = packed.new_zeros(down, across, A6W6_DATA)
        used = out[:, : across - A6W6_GUARD]
        used[..., :A6W6_PLANE] = blocks[..., :16].flatten(2)
        used[..., A6W6_PLANE:] = blocks[..., 16:].flatten(2)
        return out.reshape(-1)

    def _data_back(self, data: torch.Tensor, rows: int, size: int) -> torch.Tensor:
        down, across = self.tiles(rows, size // 24 * BLOCK)
        used = data.reshape(down, across, A6W6_DATA)[:, : across - A6W6_GUARD]
        grid = (down, across - A6W6_GUARD, 16, 4, 16)
        first = used[..., :A6W6_PLANE].reshape(*grid, 16)
        last = used[..., A6W6_PLANE:].reshape(*grid, 8)
        blocks = torch.cat((first, last), -1).permute(0, 2, 4, 1, 3, 5)
        return blocks.reshape(down * A6W6_ROWS, (across - A6W6_GUARD) * 96)[
            :rows, :size
        ].contiguous()

    def _scale(self, scales: torch.Tensor) -> torch.Tensor:
        rows, groups = scales.shape
        down, across = self.tiles(rows, groups * BLOCK)
        full = _padded(scales, down * A6W6_ROWS, (across - A6W6_GUARD) * 4)
        tiles = full.reshape(down, 2, 8, 16, across - A6W6_GUARD, 4).permute(0, 4, 1, 5, 3, 2)
        out = scales.new_zeros(down, across, A6W6_SCALE)
        out[:, : across - A6W6_GUARD] = tiles.flatten(2)
        return out.reshape(-1)

    def _scale_back(self, scale: torch.Tensor, rows: int, groups: int) -> torch.Tensor:
        down, across = self.tiles(rows, groups * BLOCK)
        used = scale.reshape(down, across, A6W6_SCALE)[:, : across - A6W6_GUARD]
        tiles = used.reshape(down, across - A6W6_GUARD, 2, 4, 16, 8).permute(0, 2, 5, 4, 1, 3)
        return tiles.reshape(down * A6W6_ROWS, (across - A6W6_GUARD) * 4)[
            :rows, :groups
        ].contiguous()


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout(PLAIN),
        AiterA4W4(AITER_A4W4_A, ("e2m1",), 1, 64),
        AiterA4W4(AITER_A4W4_B, ("e2m1",), 16, 64, preshuffle=True),
        AiterA6W6(AITER_A6W6, ("e2m3",)),
    )
}


def layout_named(name: str) -> Layout:
    """The layout called `name`; MXValueError names the valid ones."""
    if name not in LAYOUTS:
        raise MXValueError(f"unknown packing layout {name!r}; valid: {', '.join(LAYOUTS)}")
    return LAYOUTS[name]
