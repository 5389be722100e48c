# SPDX-License-Identifier: Apache-2.0
"""high_matmul: FP8 with one scale a tensor and bf16, against fp64; special values; opcheck."""

from __future__ import annotations

import pytest
import torch

from mxflux.mx import MXValueError
from mxflux.mx.high import GRADIENT, OPERAND, high_matmul, quantize_fp8


def pair() -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    return torch.randn(40, 64, generator=g), torch.randn(64, 24, generator=g)


@pytest.mark.parametrize(("precision", "limit"), [("bf16", 0.004), ("fp8", 0.07)])
def test_close_to_fp64(precision: str, limit: float) -> None:
    a, b = pair()
    exact = a.double() @ b.double()
    got = high_matmul(a, b, precision)
    assert got.dtype == torch.float32
    assert float((got - exact).norm() / exact.norm()) < limit


@pytest.mark.parametrize("dtype", [GRADIENT, OPERAND])
def test_the_largest_value_maps_to_the_largest_fp8_value(dtype: torch.dtype) -> None:
    x = torch.tensor([[1e-30, -3.0, 0.5]])
    values, scale = quantize_fp8(x, dtype)
    assert values[0, 1] == -torch.finfo(dtype).max
    torch.testing.assert_close(values[0, 1] * scale, torch.tensor(-3.0), rtol=1e-6, atol=0)


def test_zero_empty_and_bad_tensors() -> None:
    a, b = pair()
    assert high_matmul(torch.zeros_like(a), b, "fp8").eq(0).all()
    assert high_matmul(a[:, :0], b[:0], "fp8").eq(0).all()
    a[0, 0] = float("inf")
    assert high_matmul(a, b, "fp8").isnan().all()
    with pytest.raises(MXValueError, match="precision 'fp4'; valid: fp8, bf16"):
        high_matmul(a, b, "fp4")


def test_operator_passes_opcheck() -> None:
    torch.library.opcheck(torch.ops.mxflux.high_matmul.default, (*pair(), "fp8", None, "dgrad"))
