# SPDX-License-Identifier: Apache-2.0
"""The Triton packers in the interpreter, byte for byte against the reference."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import oracle
import pytest
import torch
import triton_interpreter  # noqa: F401 - before any kernel: rounds like the GPU

from mxflux.mx import (
    FORMATS,
    LAYOUTS,
    QuantSpec,
    ScaleMode,
    quantize_columns,
    quantize_dual,
    quantize_rows,
    rng_state,
)
from mxflux.mx.kernels.packers import mx_pack_kernel
from mxflux.mx.packers import reference_pack
from mxflux.mx.triton_packers import constants, covered, pack, plan, tile

RNG = rng_state(0x1234567890AB, (9 << 32) + 5)


@pytest.fixture(autouse=True)
def _numpy_overflows_like_hardware() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def check(x: torch.Tensor, row: QuantSpec | None, col: QuantSpec | None) -> None:
    """Both packers, same bytes, in the blobs asked for."""
    if row and col:
        calls = [quantize_dual(x, row, col, rng=RNG, packer=p, pad=True) for p in PACKERS]
    elif row:
        calls = [(quantize_rows(x, row, rng=RNG, packer=p, pad=True),) for p in PACKERS]
    else:
        assert col
        calls = [(quantize_columns(x, col, rng=RNG, packer=p, pad=True),) for p in PACKERS]
    for got, expected in zip(*calls, strict=True):
        assert got.scale.equal(expected.scale)
        assert got.data.equal(expected.data)


PACKERS = ("triton", "reference")
MODES = [m.value for m in ScaleMode]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_and_mode_both_directions(name: str, mode: str) -> None:
    spec = QuantSpec(name, mode)
    check(oracle.awkward(64, 128), spec, spec)


@pytest.mark.parametrize("hadamard", [16, 32])
@pytest.mark.parametrize("name", FORMATS)
def test_rotation(name: str, hadamard: int) -> None:
    check(oracle.awkward(32, 128, seed=1), None, QuantSpec(name, hadamard=hadamard))


@pytest.mark.parametrize("name", FORMATS)
def test_stochastic_rounding_draws_the_same_words(name: str) -> None:
    spec = QuantSpec(name, stochastic=True)
    x = oracle.awkward(32, 64, seed=2)
    check(x, spec, None)
    check(x, None, spec)


@pytest.mark.parametrize("hadamard", [16, 32])
@pytest.mark.parametrize("name", ["e2m1", "e2m3"])
def test_rotated_rows_cross_their_strips(name: str, hadamard: int) -> None:
    check(oracle.awkward(32, 128, seed=14), QuantSpec(name, hadamard=hadamard), None)


@pytest.mark.parametrize("tiling", [(4, 1024, 4), (16, 256, 4), (256, 32, 4), (64, 64, 2)], ids=str)
def test_bytes_do_not_depend_on_the_tile(tiling: tuple[int, int, int]) -> None:
    x = oracle.awkward(96, 288, seed=15)
    for name in ("e2m1", "e2m3", "e4m3"):
        row, col = str(QuantSpec(name)), str(QuantSpec(name)) if tiling[0] >= 32 else ""
        launch = plan(x, None, row, col, tiling=tiling)
        mx_pack_kernel[launch.grid](*launch.arguments, **launch.keywords)
        for got, expected in zip(launch.buffers, reference_pack(x, None, row, col), strict=True):
            assert got.equal(expected)


def test_stochastic_rounding_of_rotated_rows() -> None:
    check(oracle.awkward(40, 96, seed=3), QuantSpec("e2m1", hadamard=32, stochastic=True), None)


@pytest.mark.parametrize("name", ["e2m1", "e2m3"])
def test_square_blocks(name: str) -> None:
    spec = QuantSpec(name, block_2d=True)
    check(oracle.awkward(72, 160, seed=4), spec, spec)


@pytest.mark.parametrize("layout", [n for n in LAYOUTS if n != "plain.v1"])
def test_layouts_with_padding_in_both_directions(layout: str) -> None:
    spec = QuantSpec(LAYOUTS[layout].formats[0], layout=layout)
    check(oracle.awkward(48, 208, seed=5), spec, spec)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_other_dtypes(dtype: torch.dtype) -> None:
    x = oracle.awkward(32, 128, seed=6, dtype=dtype)
    check(x, QuantSpec("e2m1", "rceil"), QuantSpec("e3m2", "even"))


def test_every_tie_and_its_fp32_neighbours() -> None:
    for name in FORMATS:
        values = oracle.DTYPES[name]
        codes = np.arange(1 << FORMATS[name].bits, dtype=np.uint8).view(values).astype(np.float64)
        grid = np.unique(codes[np.isfinite(codes)])
        ties = ((grid[1:] + grid[:-1]) / 2).astype(np.float32)
        near = [np.nextafter(ties, np.float32(side)) for side in (np.inf, -np.inf)]
        x = torch.from_numpy(np.concatenate([ties, *near]))
        x = torch.nn.functional.pad(x, (0, -len(x) % 31)).reshape(-1, 31)
        x = torch.cat((x, torch.full((len(x), 1), FORMATS[name].largest)), 1)
        check(x, QuantSpec(name), None)


@pytest.mark.parametrize("shape", [(1, 1), (33, 31), (5, 300), (130, 40)], ids=str)
def test_ragged_shapes(shape: tuple[int, int]) -> None:
    check(oracle.awkward(*shape, seed=7), QuantSpec("e2m1"), QuantSpec("e2m3"))


def test_strides_are_honoured_and_gaps_never_read() -> None:
    wide = torch.full((64, 400), float("nan"), dtype=torch.bfloat16)
    wide[:, 40:104] = oracle.awkward(64, 64, seed=8)
    spec = QuantSpec("e2m1")
    check(wide[:, 40:104], spec, spec)
    spaced = torch.full((64, 192), float("nan"), dtype=torch.bfloat16)
    spaced[:, ::3] = oracle.awkward(64, 64, seed=9)
    check(spaced[:, ::3], spec, spec)
    check(oracle.awkward(64, 96, seed=10).t(), spec, spec)
    check(oracle.awkward(1, 64, seed=11).expand(64, 64), spec, spec)


def test_tiles_that_span_2_to_the_31_use_wide_offsets() -> None:
    # A row stride of 2**26 elements: 32 rows need 64-bit offsets. Backed by a view, not by memory.
    x = oracle.awkward(1, 64, seed=12)
    far = torch.as_strided(x, (1, 64), (1 << 26, 1))
    check(far, QuantSpec("e2m1"), None)


def test_nothing_outside_the_blobs_is_written() -> None:
    x = oracle.awkward(40, 72, seed=13)
    row, col = str(QuantSpec("e2m3")), str(QuantSpec("e2m1"))
    first = pack(x, None, row, col)
    again = pack(x, None, row, col)
    for a, b in zip(first, again, strict=True):
        assert a.equal(b)
    alone = pack(x, None, row, "")
    assert alone[2].numel() == alone[3].numel() == 0
    assert alone[0].equal(first[0])


def test_tables_cover_every_kind_and_the_padding() -> None:
    plain, square = str(QuantSpec()), str(QuantSpec(block_2d=True))
    for backend, lanes in (("cuda", 32), ("hip", 64)):
        for kind in ((plain, ""), ("", plain), (plain, plain), (square, "")):
            rows, cols, warps = tile(*kind, backend)
            assert cols % 32 == 0
            assert rows % 32 == 0 or kind == (plain, "")
            # A thread's strip is 8 elements along a row, its block 32 along a column.
            assert rows * cols >= warps * lanes * (32 if kind[1] else 8)
    assert covered(300, 160, str(QuantSpec("e2m3", layout="aiter_a6w6.v1"))) == (512, 256)
    assert covered(300, 160, str(QuantSpec("e2m1", layout="aiter_a4w4_b.v1"))) == (512, 256)
    assert covered(300, 160, str(QuantSpec())) == (300, 160)
    assert covered(300, 160, "") == (0, 0)
    assert constants(str(QuantSpec("e3m2")), "")["ROW_FMT"] == "e3m2"
