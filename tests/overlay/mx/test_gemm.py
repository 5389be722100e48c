# SPDX-License-Identifier: Apache-2.0
"""gemm and the emulated backend: exact products, bias, out and accumulate, refusals."""

from __future__ import annotations

import pytest
import torch

from mxflux.mx import (
    FORMATS,
    MissingOperandError,
    MXBlob,
    MXUnavailableError,
    MXValueError,
    QuantSpec,
    gemm,
    quantize_rows,
)


def operands(name: str = "e2m1", k: int = 96, hadamard: int = 0) -> tuple[MXBlob, MXBlob]:
    generator = torch.Generator().manual_seed(0)
    spec = QuantSpec(name, hadamard=hadamard)
    a, b = (torch.randn(rows, k, generator=generator) for rows in (40, 24))
    return quantize_rows(a, spec, pad=True), quantize_rows(b, spec, pad=True)


def exact(a: MXBlob, b: MXBlob) -> torch.Tensor:
    return a.values().double() @ b.values().double().t()


@pytest.mark.parametrize("name", FORMATS)
def test_product_is_the_dequantized_product(name: str) -> None:
    a, b = operands(name)
    got = gemm(a, b, backend="emulated", out_dtype=torch.float32)
    torch.testing.assert_close(got.double(), exact(a, b), rtol=1e-5, atol=1e-5)
    assert gemm(a, b, backend="emulated").equal(got.bfloat16())


def test_rotation_of_both_cancels_and_of_one_is_refused() -> None:
    plain, rotated = operands("e4m3"), operands("e4m3", hadamard=32)
    same = [gemm(a, b, backend="emulated", out_dtype=torch.float32) for a, b in (plain, rotated)]
    assert float((same[0] - same[1]).norm() / same[0].norm()) < 0.1
    with pytest.raises(
        MXValueError, match="rotated by 32 points, B by 0: both operands or neither"
    ):
        gemm(rotated[0], plain[1], backend="emulated")


def test_mixed_formats_multiply() -> None:
    a, b = operands("e2m1")[0], operands("e2m3")[1]
    got = gemm(a, b, backend="emulated", out_dtype=torch.float32)
    torch.testing.assert_close(got.double(), exact(a, b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_out_accumulate_and_bias_round_once(dtype: torch.dtype) -> None:
    a, b = operands()
    bias = torch.randn(24, generator=torch.Generator().manual_seed(1)).bfloat16()
    product = gemm(a, b, backend="emulated", out_dtype=torch.float32)
    got = gemm(a, b, backend="emulated", out_dtype=dtype, bias=bias)
    assert got.equal((product + bias.float()).to(dtype))
    out = torch.randn(24, 40, generator=torch.Generator().manual_seed(2)).to(dtype).t()
    before = out.clone()
    assert gemm(a, b, backend="emulated", out=out, accumulate=True) is out
    assert out.equal((before.float() + product).to(dtype))
    assert gemm(a, b, backend="emulated", out=out).equal(product.to(dtype))


def test_empty_dimensions() -> None:
    spec = QuantSpec("e2m1")
    none, some = quantize_rows(torch.ones(0, 32), spec), quantize_rows(torch.ones(8, 32), spec)
    assert tuple(gemm(none, some, backend="emulated").shape) == (0, 8)
    assert tuple(gemm(some, none, backend="emulated").shape) == (8, 0)
    thin = quantize_rows(torch.ones(8, 0), spec)
    bias = torch.arange(8.0)
    got = gemm(thin, thin, backend="emulated", bias=bias, out_dtype=torch.float32)
    assert got.equal(bias.expand(8, 8))


def test_bad_calls_are_refused() -> None:
    a, b = operands()
    with pytest.raises(MXValueError, match=r"A is \(40, 96\), B is \(24, 64\): K must be equal"):
        gemm(a, operands(k=64)[1], backend="emulated")
    with pytest.raises(MXValueError, match="'cublas'; valid: emulated, triton, hipblaslt, aiter"):
        gemm(a, b, backend="cublas")
    with pytest.raises(MXValueError, match="accumulate needs out"):
        gemm(a, b, backend="emulated", accumulate=True)
    with pytest.raises(MXValueError, match=r"out must be \(40, 24\) on cpu, got \(24, 40\)"):
        gemm(a, b, backend="emulated", out=torch.empty(24, 40))
    for dtype in (torch.float64, torch.int32):
        with pytest.raises(MXValueError, match=f"not {dtype}"):
            gemm(a, b, backend="emulated", out_dtype=dtype)
        with pytest.raises(MXValueError, match=f"not {dtype}"):
            gemm(a, b, backend="emulated", out=torch.zeros(40, 24, dtype=dtype))
    with pytest.raises(MXValueError, match=r"bias must be \(24,\), got \(40,\)"):
        gemm(a, b, backend="emulated", bias=torch.ones(40))
    missing = MXBlob(torch.empty(0, dtype=torch.uint8), a.scale, 40, 96, a.spec)
    with pytest.raises(MissingOperandError, match=r"A \(40, 96\) was never packed"):
        gemm(missing, b, backend="emulated")
    meta = MXBlob(b.data.to("meta"), b.scale.to("meta"), 24, 96, b.spec)
    with pytest.raises(MXValueError, match="A is on cpu, B on meta"):
        gemm(a, meta, backend="emulated")


@pytest.mark.parametrize("name", ["triton", "hipblaslt", "aiter"])
def test_a_named_backend_raises_instead_of_falling_back(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    a, b = operands()
    with pytest.raises(MXUnavailableError, match=rf"GEMM backend '{name}': .*mxflux\.mx\.doctor"):
        gemm(a, b, backend=name)


def test_operators_pass_opcheck() -> None:
    a, b = operands()
    spec = str(a.spec)
    tensors = (a.data, a.scale, b.data, b.scale, torch.ones(24), None)
    sizes = (40, 24, 96, 96, spec, spec, "emulated")
    torch.library.opcheck(
        torch.ops.mxflux.gemm.default, (*tensors, *sizes, torch.bfloat16, "fprop")
    )
    out = torch.zeros(40, 24)
    torch.library.opcheck(
        torch.ops.mxflux.gemm_into.default, (*tensors, *sizes, out, True, "wgrad")
    )
