# SPDX-License-Identifier: Apache-2.0
"""layouts: pack and unpack are inverse, byte positions by the written rule, padding, refusals."""

from __future__ import annotations

import pytest
import torch

from mxflux.mx.codes import pack_codes, unpack_codes
from mxflux.mx.errors import MXValueError
from mxflux.mx.formats import FORMATS
from mxflux.mx.layouts import LAYOUTS, Layout, layout_named

CASES = [(layout, name) for layout in LAYOUTS.values() for name in (layout.formats or FORMATS)]
SHAPES = [(16, 64), (48, 192), (272, 320), (512, 128)]


def random_blob(rows: int, cols: int, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows * 1000 + cols)
    codes = torch.randint(0, 1 << FORMATS[name].bits, (rows, cols), generator=generator)
    scales = torch.randint(0, 256, (rows, cols // 32), generator=generator)
    return codes.to(torch.uint8), scales.to(torch.uint8)


@pytest.mark.parametrize("bits", [4, 6, 8])
def test_codes_are_little_endian_bit_streams(bits: int) -> None:
    codes = random_blob(3, 64, {4: "e2m1", 6: "e2m3", 8: "e4m3"}[bits])[0]
    packed = pack_codes(codes, bits)
    assert unpack_codes(packed, bits).equal(codes)
    for row in range(3):
        stream = sum(int(c) << (bits * i) for i, c in enumerate(codes[row]))
        assert bytes(packed[row].tolist()) == stream.to_bytes(64 * bits // 8, "little")


@pytest.mark.parametrize(("layout", "name"), CASES, ids=lambda v: getattr(v, "name", v))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_unpack_is_the_inverse_of_pack(layout: Layout, name: str, shape: tuple[int, int]) -> None:
    codes, scales = random_blob(*shape, name)
    data, scale = layout.pack(codes, scales, FORMATS[name])
    assert tuple(data.shape) == layout.data_shape(*shape, FORMATS[name])
    assert tuple(scale.shape) == layout.scale_shape(*shape)
    assert data.dtype == scale.dtype == torch.uint8
    got = layout.unpack(data, scale, *shape, FORMATS[name])
    assert got[0].equal(codes)
    assert got[1].equal(scales)


@pytest.mark.parametrize(
    ("rows", "cols", "data", "scale"),
    [
        (1, 32, 3 * 24576, 3 * 1024),
        (256, 128, 3 * 24576, 3 * 1024),
        (257, 160, 8 * 24576, 8 * 1024),
        (32768, 3072, 128 * 26 * 24576, 128 * 26 * 1024),
    ],
)
def test_a6w6_byte_counts(rows: int, cols: int, data: int, scale: int) -> None:
    layout = layout_named("aiter_a6w6.v1")
    assert layout.data_shape(rows, cols, FORMATS["e2m3"]) == (data,)
    assert layout.scale_shape(rows, cols) == (scale,)


def test_a6w6_bytes_lie_where_the_rule_says() -> None:
    codes, scales = random_blob(300, 288, "e2m3")
    data, scale = layout_named("aiter_a6w6.v1").pack(codes, scales, FORMATS["e2m3"])
    packed, across = pack_codes(codes, 6), 3 + 2
    for row, group in ((0, 0), (17, 3), (255, 8), (256, 0), (299, 5)):
        tile = row // 256 * across + group // 4
        number = row % 256 // 16 * 64 + group % 4 * 16 + row % 16
        at = tile * 24576
        got = torch.cat((data[at + number * 16 :][:16], data[at + 16384 + number * 8 :][:8]))
        assert got.equal(packed[row, group * 24 : group * 24 + 24])
        inside = row % 256 // 128 * 512 + group % 4 * 128 + row % 16 * 8 + row % 128 // 16
        assert scale[tile * 1024 + inside] == scales[row, group]


def test_a6w6_guard_tiles_and_padding_are_zero_and_never_read() -> None:
    layout, fmt = layout_named("aiter_a6w6.v1"), FORMATS["e2m3"]
    ones = torch.full((40, 96), 63, dtype=torch.uint8), torch.full((40, 3), 255, dtype=torch.uint8)
    used_data, used_scale = layout.pack(*ones, fmt)
    assert int(used_data.eq(255).sum()) == 40 * 96 * 6 // 8
    assert int(used_scale.eq(255).sum()) == 40 * 3
    assert used_data.reshape(3, -1)[1:].eq(0).all()
    codes, scales = random_blob(40, 96, "e2m3")
    data, scale = layout.pack(codes, scales, fmt)
    data[used_data == 0], scale[used_scale == 0] = 0xA5, 0x5A
    got_codes, got_scales = layout.unpack(data, scale, 40, 96, fmt)
    assert got_codes.equal(codes)
    assert got_scales.equal(scales)


def test_a4w4_bytes_lie_where_the_rule_says() -> None:
    codes, scales = random_blob(48, 192, "e2m1")
    data, scale = layout_named("aiter_a4w4_b.v1").pack(codes, scales, FORMATS["e2m1"])
    plain, shuffled = layout_named("aiter_a4w4_a.v1").pack(codes, scales, FORMATS["e2m1"])
    assert plain.equal(pack_codes(codes, 4))
    assert shuffled.equal(scale)
    assert tuple(scale.shape) == (256, 8)
    for row, byte in ((0, 0), (17, 33), (31, 95), (47, 64)):
        at = ((row // 16 * 3 + byte // 32) * 2 + byte % 32 // 16) * 16 + row % 16
        assert data.flatten()[at * 16 + byte % 16] == plain[row, byte]
    for row, group in ((0, 0), (17, 1), (40, 5)):
        outer = (row // 32 * 1 + group // 8) * 4 + group % 4
        at = ((outer * 16 + row % 16) * 2 + group % 8 // 4) * 2 + row % 32 // 16
        assert scale.flatten()[at] == scales[row, group]
    assert int(scale.ne(0).sum()) == int(scales.ne(0).sum())


def test_bad_shapes_formats_names_and_buffers_are_refused() -> None:
    codes, scales = random_blob(17, 64, "e2m1")
    with pytest.raises(MXValueError, match=r"'plain'; valid: plain.v1, aiter_a4w4_a.v1"):
        layout_named("plain")
    with pytest.raises(MXValueError, match=r"plain.v1: shape \(4, 40\): K = 40 must be .* 32"):
        layout_named("plain.v1").check_shape(4, 40)
    with pytest.raises(MXValueError, match=r"aiter_a4w4_b.v1: shape \(17, 64\): 17 rows .* 16"):
        layout_named("aiter_a4w4_b.v1").pack(codes, scales, FORMATS["e2m1"])
    with pytest.raises(MXValueError, match=r"aiter_a6w6\.v1 holds e2m3, not e3m2"):
        layout_named("aiter_a6w6.v1").pack(codes, scales, FORMATS["e3m2"])
    with pytest.raises(MXValueError, match=r"data of a \(17, 64\) e2m1 blob is uint8 \(17, 32\)"):
        layout_named("plain.v1").unpack(codes, scales, 17, 64, FORMATS["e2m1"])
