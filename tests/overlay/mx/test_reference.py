# SPDX-License-Identifier: Apache-2.0
"""reference: bit-equal to ml_dtypes and to an independent scale rule; special blocks; rounding."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
import torch

from mxflux.mx import reference
from mxflux.mx.formats import BLOCK, FORMATS, ScaleMode

MODES = [m.value for m in ScaleMode]


@pytest.mark.parametrize("name", FORMATS)
def test_encode_is_exact_on_every_finite_bf16(name: str) -> None:
    x = oracle.finite_bfloat16()
    got = reference.encode(torch.from_numpy(x), FORMATS[name]).numpy()
    np.testing.assert_array_equal(got, oracle.encode(x, name))


@pytest.mark.parametrize("name", FORMATS)
def test_encode_is_exact_on_ties_and_their_fp32_neighbours(name: str) -> None:
    values = reference.code_values(FORMATS[name]).numpy()
    grid = np.unique(values[np.isfinite(values)]).astype(np.float64)
    ties = ((grid[1:] + grid[:-1]) / 2).astype(np.float32)
    near = [np.nextafter(ties, np.float32(side)) for side in (np.inf, -np.inf)]
    x = np.concatenate([ties, *near, grid.astype(np.float32), np.float32([1e-45, -1e-45, 3e38])])
    got = reference.encode(torch.from_numpy(x), FORMATS[name]).numpy()
    np.testing.assert_array_equal(got, oracle.encode(x, name))


@pytest.mark.parametrize(
    ("value", "code"),
    [(0.25, 0), (0.75, 2), (1.25, 2), (1.75, 4), (2.5, 4), (3.5, 6), (5.0, 6), (5.01, 7)],
)
def test_fp4_ties_go_to_even(value: float, code: int) -> None:
    x = torch.tensor([value, -value])
    assert reference.encode(x, FORMATS["e2m1"]).tolist() == [code, code | 8]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FORMATS)
def test_scale_byte_of_every_bf16_amax(name: str, mode: str) -> None:
    amax = np.abs(oracle.finite_bfloat16())
    amax = np.unique(np.concatenate([amax, np.float32([np.inf, np.nan])]))
    got = reference.scale_byte(
        reference.magnitude_bits(torch.from_numpy(amax)), FORMATS[name], ScaleMode(mode)
    )
    expected = [oracle.scale(a, name, mode) for a in amax]
    np.testing.assert_array_equal(got.numpy(), expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FORMATS)
def test_scale_byte_next_to_powers_of_two(name: str, mode: str) -> None:
    powers = (2.0 ** np.arange(-126.0, 128.0)).astype(np.float32)
    largest = np.float32(oracle.SHAPE[name][2])
    edges = [powers, np.nextafter(powers, np.float32(0)), np.nextafter(powers, np.float32(np.inf))]
    edges += [powers[20:-20] * largest, np.nextafter(powers[20:-20] * largest, np.float32(np.inf))]
    amax = np.concatenate(edges)
    got = reference.scale_byte(
        reference.magnitude_bits(torch.from_numpy(amax)), FORMATS[name], ScaleMode(mode)
    )
    np.testing.assert_array_equal(got.numpy(), [oracle.scale(a, name, mode) for a in amax])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FORMATS)
def test_quantize_equals_the_oracle(name: str, mode: str, dtype: torch.dtype) -> None:
    x = oracle.awkward(40, 96, dtype=dtype)
    codes, scales = reference.quantize(x, FORMATS[name], ScaleMode(mode))
    expected_codes, expected_scales = oracle.quantize(x.float().numpy(), name, mode)
    np.testing.assert_array_equal(scales.numpy(), expected_scales)
    np.testing.assert_array_equal(codes.numpy(), expected_codes)


@pytest.mark.parametrize("position", range(0, BLOCK, 5))
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_one_bad_value_spoils_its_block_only(bad: float, position: int) -> None:
    x = torch.ones(2, 96)
    x[1, 32 + position] = bad
    codes, scales = reference.quantize(x, FORMATS["e2m3"])
    assert scales.tolist() == [[125] * 3, [125, 255, 125]]
    assert codes[1, 32:64].eq(0).all()
    values = reference.dequantize(codes, scales, FORMATS["e2m3"])
    assert values[1, 32:64].isnan().all()
    assert values.isnan().sum() == BLOCK


@pytest.mark.parametrize("name", FORMATS)
def test_zero_blocks_keep_their_signs_under_scale_zero(name: str) -> None:
    x = torch.zeros(1, 64)
    x[0, 1::2] = -0.0
    codes, scales = reference.quantize(x, FORMATS[name])
    assert scales.tolist() == [[0, 0]]
    assert codes[0, ::2].eq(0).all()
    assert codes[0, 1::2].eq(FORMATS[name].sign_mask).all()
    assert (
        reference.dequantize(codes, scales, FORMATS[name])
        .view(torch.int32)
        .equal(x.view(torch.int32))
    )


@pytest.mark.parametrize("name", FORMATS)
def test_subnormal_blocks_are_quantized_not_flushed(name: str) -> None:
    fmt = FORMATS[name]
    x = torch.full((1, 32), 2.0**-128)
    codes, scales = reference.quantize(x, fmt)
    assert scales.item() == 0
    assert reference.dequantize(codes, scales, fmt).eq(x).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FORMATS)
def test_error_is_at_most_half_a_step_unless_clipped(name: str, mode: str) -> None:
    fmt = FORMATS[name]
    x = torch.randn(64, 128, generator=torch.Generator().manual_seed(1)).double()
    codes, scales = reference.quantize(x.float(), fmt, ScaleMode(mode))
    got = reference.dequantize(codes, scales, fmt).double()
    unit = torch.exp2(scales.double() - 127).repeat_interleave(BLOCK, 1)
    y = (x.float().double() / unit).abs()
    exponent = torch.floor(torch.log2(y.clamp(min=fmt.min_normal)))
    half_step = torch.exp2(exponent - fmt.mantissa_bits) / 2
    clipped = y > fmt.largest
    assert ((got - x.float()).abs() / unit <= half_step)[~clipped].all()
    assert (got.abs() / unit == fmt.largest)[clipped].all()
    if mode in {"ceil", "rceil"}:
        assert not clipped.any()


def test_floor_clips_two_fifths_of_log_uniform_fp4_maxima() -> None:
    power = torch.rand(4096, 1, generator=torch.Generator().manual_seed(2)) * 40 - 20
    x = torch.exp2(power).expand(-1, 32)
    _, scales = reference.quantize(x, FORMATS["e2m1"])
    share = (x.amax(1) > 6 * torch.exp2(scales[:, 0].float() - 127)).float().mean()
    assert 0.35 < share < 0.47  # log2(8 / 6) = 0.415 for log-uniform maxima


def test_block_2d_gives_one_scale_a_square_and_the_same_values_both_ways() -> None:
    x = torch.randn(64, 96, generator=torch.Generator().manual_seed(3))
    codes, scales = reference.quantize(x, FORMATS["e2m1"], block_2d=True)
    codes_t, scales_t = reference.quantize(x.t(), FORMATS["e2m1"], block_2d=True)
    assert scales.reshape(2, 32, 3).eq(scales.reshape(2, 32, 3)[:, :1]).all()
    assert codes_t.t().equal(codes)
    assert scales_t[::32].t().equal(scales[::32])


@pytest.mark.parametrize("shape", [(0, 64), (5, 0), (0, 0)])
def test_empty_matrices_give_empty_codes(shape: tuple[int, int]) -> None:
    codes, scales = reference.quantize(torch.empty(shape), FORMATS["e2m1"])
    assert tuple(codes.shape) == shape
    assert tuple(scales.shape) == (shape[0], shape[1] // 32)
    assert tuple(reference.dequantize(codes, scales, FORMATS["e2m1"]).shape) == shape
