# SPDX-License-Identifier: Apache-2.0
"""quantize_rows, quantize_columns, quantize_dual: one definition, any strides, clear refusals."""

from __future__ import annotations

import oracle
import pytest
import torch

from mxflux.mx import (
    FORMATS,
    LAYOUTS,
    MXUnavailableError,
    MXValueError,
    QuantSpec,
    quantize_columns,
    quantize_dual,
    quantize_rows,
    rng_state,
)


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.float().contiguous().view(torch.int32)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FORMATS)
def test_dual_equals_rows_and_columns_of_the_transpose(name: str, layout: str) -> None:
    if LAYOUTS[layout].formats and name not in LAYOUTS[layout].formats:
        with pytest.raises(MXValueError, match=f"holds .* not {name}"):
            QuantSpec(name, layout=layout)
        return
    x = oracle.awkward(96, 160)
    row = QuantSpec(name, stochastic=True, layout=layout)
    column = QuantSpec(name, "even", hadamard=16, layout=layout)
    rng = rng_state(5, 6)
    a, b = quantize_dual(x, row, column, rng=rng, pad=True)
    for blob, alone in (
        (a, quantize_rows(x, row, rng=rng, pad=True)),
        (b, quantize_columns(x, column, rng=rng, pad=True)),
        (b, quantize_rows(x.t().contiguous(), column, rng=rng, pad=True)),
    ):
        assert (blob.rows, blob.k, blob.spec) == (alone.rows, alone.k, alone.spec)
        assert blob.data.equal(alone.data)
        assert blob.scale.equal(alone.scale)


def test_stochastic_columns_round_independently_of_rows() -> None:
    x = torch.rand(64, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    spec = QuantSpec("e2m1", block_2d=True, stochastic=True)
    a, b = quantize_dual(x, spec, spec, rng=rng_state(1))
    assert a.dequantize().ne(b.dequantize().t()).float().mean() > 0.1


@pytest.mark.parametrize("hadamard", [0, 16, 32])
def test_dequantize_undoes_rotation_and_padding(hadamard: int) -> None:
    x = torch.randn(40, 72, generator=torch.Generator().manual_seed(0))
    blob = quantize_rows(x, QuantSpec("e4m3", hadamard=hadamard), pad=True)
    assert (blob.k, blob.padded_k) == (72, 96)
    assert tuple(blob.values().shape) == (40, 96)
    got = blob.dequantize()
    assert got.shape == x.shape
    assert float((got - x).norm() / x.norm()) < 0.04


def test_strided_and_expanded_inputs_equal_their_contiguous_copies() -> None:
    wide = torch.randn(96, 256, generator=torch.Generator().manual_seed(0)).bfloat16()
    spec = QuantSpec("e2m3")
    for x in (wide[:, 64:160], wide[:, ::2], wide.t(), wide[:1].expand(64, 256), wide[::3]):
        assert not x.is_contiguous()
        got, expected = (quantize_dual(v, spec, spec, pad=True) for v in (x, x.contiguous()))
        for left, right in zip(got, expected, strict=True):
            assert left.data.equal(right.data)
            assert left.scale.equal(right.scale)


@pytest.mark.parametrize("shape", [(0, 64), (64, 0), (0, 0)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_empty_inputs_give_empty_blobs(shape: tuple[int, int], layout: str) -> None:
    name = (LAYOUTS[layout].formats or ("e2m1",))[0]
    spec = QuantSpec(name, layout=layout)
    a, b = quantize_dual(torch.empty(shape), spec, spec, pad=True)
    assert tuple(a.dequantize().shape) == shape
    assert tuple(b.dequantize().shape) == shape[::-1]


def test_bad_input_is_refused_before_anything_runs() -> None:
    x = torch.ones(32, 64)
    spec = QuantSpec("e2m1")
    with pytest.raises(MXValueError, match=r"shape \(32, 40\): K = 40 must be a multiple of 32"):
        quantize_rows(torch.ones(32, 40), spec)
    with pytest.raises(MXValueError, match=r"shape \(64, 20\): K = 20"):
        quantize_columns(torch.ones(20, 64), spec)
    for dtype in (torch.float64, torch.int32, torch.uint8, torch.complex64):
        with pytest.raises(MXValueError, match=f"float16 or float32, got {dtype}"):
            quantize_rows(x.to(dtype), spec)
    with pytest.raises(MXValueError, match=r"takes a matrix \(R, K\), got shape \(2, 32, 64\)"):
        quantize_rows(x.expand(2, 32, 64), spec)
    with pytest.raises(MXValueError, match="needs rng=rng_state"):
        quantize_rows(x, QuantSpec("e2m1", stochastic=True))
    with pytest.raises(MXValueError, match=r"rng is int64 \(2,\)"):
        quantize_rows(x, spec, rng=torch.zeros(3, dtype=torch.int64))
    with pytest.raises(MXValueError, match=r"seed=-1: must lie in \[0, 2\*\*63\)"):
        rng_state(-1)
    with pytest.raises(MXValueError, match="unknown packer 'hip'; valid: auto, reference, triton"):
        quantize_rows(x, spec, packer="hip")


def test_triton_by_name_never_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(MXUnavailableError, match=r"packer 'triton': .*got one on cpu"):
        quantize_rows(torch.ones(32, 32), QuantSpec("e2m1"), packer="triton")


def test_specs_are_canonical_text_and_refuse_nonsense() -> None:
    spec = QuantSpec("e3m2", "rceil", hadamard=32, stochastic=True)
    assert QuantSpec.parse(str(spec)) == spec
    for bad in ("", "e2m1", str(spec) + ";x=1", str(spec).replace("True", "yes")):
        with pytest.raises(MXValueError, match="not a"):
            QuantSpec.parse(bad)
    for kwargs, message in (
        ({"format": "fp4"}, "element format 'fp4'"),
        ({"scale_mode": "up"}, "scale mode 'up'"),
        ({"hadamard": 8}, "hadamard=8"),
        ({"layout": "row"}, "packing layout 'row'"),
        ({"block_2d": True, "hadamard": 16}, "block_2d with hadamard"),
    ):
        with pytest.raises(MXValueError, match=message):
            QuantSpec(**kwargs)  # type: ignore[arg-type]


def test_operator_passes_opcheck() -> None:
    spec = str(QuantSpec("e2m1", layout="aiter_a4w4_a.v1"))
    args = (
        torch.randn(40, 96),
        rng_state(0),
        spec,
        str(QuantSpec("e2m3")),
        "auto",
        True,
        None,
        "x",
    )
    torch.library.opcheck(torch.ops.mxflux.quantize.default, args)


def test_nan_in_one_row_stays_in_its_blocks() -> None:
    x = torch.ones(64, 64)
    x[3, 40] = float("nan")
    a, b = quantize_dual(x, QuantSpec("e2m1"), QuantSpec("e2m1"))
    assert a.dequantize().isnan().nonzero()[:, 0].unique().tolist() == [3]
    assert b.dequantize().isnan().nonzero().unique(dim=0)[:, 0].unique().tolist() == [40]
    assert int(a.dequantize().isnan().sum()) == int(b.dequantize().isnan().sum()) == 32
    assert bits(a.dequantize()[0]).equal(bits(x[0]))
