# SPDX-License-Identifier: Apache-2.0
"""Stochastic rounding: unbiased, between the neighbours, reproducible from (seed, offset)."""

from __future__ import annotations

import pytest
import torch

from mxflux.mx import reference
from mxflux.mx.formats import FORMATS
from mxflux.mx.quantize import rng_state

DRAWS = 4096


def draws(value: float, name: str, seed: int = 0) -> torch.Tensor:
    """DRAWS roundings of `value` in blocks whose scale is 1, as float64."""
    fmt = FORMATS[name]
    x = torch.full((DRAWS // 16, 32), value)
    x[:, 16:] = 2.0**fmt.emax
    codes, scales = reference.quantize(x, fmt, rng=rng_state(seed))
    assert scales.eq(127).all()
    return reference.dequantize(codes, scales, fmt)[:, :16].double().flatten()


@pytest.mark.parametrize("fraction", [0.03125, 0.25, 0.5, 0.8125])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("region", ["subnormal", "normal", "top"])
def test_the_mean_is_the_value(name: str, region: str, fraction: float) -> None:
    fmt = FORMATS[name]
    step = {
        "subnormal": fmt.min_subnormal,
        "normal": 2.0**-fmt.mantissa_bits,
        "top": 2.0 ** (fmt.emax - 1 - fmt.mantissa_bits),
    }[region]
    low = {"subnormal": 0.0, "normal": 1.0, "top": 2.0 ** (fmt.emax - 1)}[region]
    value = low + fraction * step
    for sign in (1, -1):
        got = draws(sign * value, name, seed=int(fraction * 64))
        assert set(got.tolist()) == {sign * low, sign * (low + step)}
        sigma = step * (fraction * (1 - fraction) / DRAWS) ** 0.5
        assert abs(float(got.mean()) - sign * value) < 4 * sigma


@pytest.mark.parametrize("name", FORMATS)
def test_representable_values_never_move(name: str) -> None:
    fmt = FORMATS[name]
    values = reference.code_values(fmt)
    values = values[values.isfinite()]
    x = values.repeat(-(-64 // len(values)))
    x = torch.nn.functional.pad(x, (0, -len(x) % 32)).reshape(-1, 32)
    x[:, 0] = fmt.largest
    codes, scales = reference.quantize(x, fmt, rng=rng_state(11))
    assert reference.dequantize(codes, scales, fmt).equal(x)


def test_bytes_depend_on_seed_and_offset_only() -> None:
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    first = reference.quantize(x, FORMATS["e2m1"], rng=rng_state(1, 2))[0]
    assert first.equal(reference.quantize(x, FORMATS["e2m1"], rng=rng_state(1, 2))[0])
    for other in (rng_state(1, 3), rng_state(2, 2)):
        assert not first.equal(reference.quantize(x, FORMATS["e2m1"], rng=other)[0])
    # Rows are independent of what follows them: the counter is the element's own index.
    assert first[:8].equal(reference.quantize(x[:8], FORMATS["e2m1"], rng=rng_state(1, 2))[0])


def test_special_blocks_are_as_without_it() -> None:
    x = torch.zeros(3, 32)
    x[1, 4], x[2, 5] = float("nan"), float("inf")
    codes, scales = reference.quantize(x, FORMATS["e2m1"], rng=rng_state(0))
    assert scales.tolist() == [[0], [255], [255]]
    assert codes.eq(0).all()
