# SPDX-License-Identifier: Apache-2.0
"""The dot_scaled GEMM in the interpreter (triton >= 3.8) against the dequantized product."""

from __future__ import annotations

import pytest
import torch
import triton
import triton_interpreter  # noqa: F401 - before any kernel: rounds like the GPU

from mxflux.mx import MXUnavailableError, QuantSpec, gemm, quantize_rows
from mxflux.mx.backends import triton_dot

WORKS = tuple(int(p) for p in triton.__version__.split(".")[:2]) >= (3, 8)
needs_dot_scaled = pytest.mark.skipif(
    not WORKS, reason=f"the interpreter of triton {triton.__version__} has no dot_scaled"
)


@needs_dot_scaled
@pytest.mark.parametrize("shape", [(40, 24, 96), (130, 70, 160)], ids=str)
@pytest.mark.parametrize("name", triton_dot.FORMATS)
def test_equals_the_dequantized_product(name: str, shape: tuple[int, int, int]) -> None:
    g = torch.Generator().manual_seed(0)
    m, n, k = shape
    spec = QuantSpec(name)
    a = quantize_rows(torch.randn(m, k, generator=g), spec)
    b = quantize_rows(torch.randn(n, k, generator=g), spec)
    got = gemm(a, b, backend="triton", out_dtype=torch.float32)
    exact = a.values().double() @ b.values().double().t()
    assert float((got - exact).norm() / exact.norm()) < 1e-6


@pytest.mark.skipif(WORKS, reason="this triton interprets dot_scaled")
def test_an_interpreter_without_dot_scaled_is_refused() -> None:
    a = quantize_rows(torch.ones(32, 32), QuantSpec("e2m1"))
    with pytest.raises(MXUnavailableError, match=r"interpreter of triton .* has no dot_scaled"):
        gemm(a, a, backend="triton")


def test_refuses_fp6_and_foreign_layouts() -> None:
    six = quantize_rows(torch.ones(32, 64), QuantSpec("e2m3"))
    assert "dot_scaled has no e2m3" in str(triton_dot.refusal(six, six))
    tiled = quantize_rows(torch.ones(32, 64), QuantSpec("e2m1", layout="aiter_a4w4_a.v1"))
    assert "it reads layout plain.v1" in str(triton_dot.refusal(tiled, tiled))


def test_small_and_large_tiles_fit_their_operands() -> None:
    for rows in (1, 64, 65, 32768):
        (m, n, k, group), warps, stages = triton_dot.configuration(rows)
        assert m % 32 == n % 32 == k % 32 == 0
        assert group >= 1
        assert warps in (4, 8)
        assert stages >= 1
