# SPDX-License-Identifier: Apache-2.0
"""The aiter adapter: its calls bind to the published signatures, its operands to their shapes.

aiter itself cannot run without a gfx950 GPU. These signatures are transcribed from the wheel
amd-aiter 0.1.7.post2.dev18 and from ROCm/aiter main; with MXFLUX_AITER_WHEEL set to the wheel's
path the transcription is compared with it.
"""

from __future__ import annotations

import ast
import inspect
import os
import zipfile
from typing import Any

import pytest
import torch

from mxflux.mx import MXBlob, MXUnavailableError, QuantSpec, quantize_rows
from mxflux.mx.backends import aiter_gemm
from mxflux.mx.layouts import AITER_A4W4_A, AITER_A4W4_B, AITER_A6W6

OLD_A4W4 = ["A", "B", "A_scale", "B_scale", "out", "bias", "alpha", "beta", "bpreshuffle"]
NEW_A4W4 = [
    "A", "B", "A_scale", "B_scale", "bias", "dtype", "alpha", "beta", "bpreshuffle", "apreshuffle",
]  # fmt: skip
A6W6 = ["A", "B", "A_scale", "B_scale", "M", "N", "K", "dtype", "alpha", "kernelName", "bias"]
REQUIRED = {"A", "B", "A_scale", "B_scale", "out", "M", "N", "K"}


def function(names: list[str]) -> Any:
    """A callable with these parameters that gives back what it was called with."""

    def called(*args: Any, **kwargs: Any) -> Any:
        return called.__signature__.bind(*args, **kwargs).arguments  # type: ignore[attr-defined]

    called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                n,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if n in REQUIRED else None,
            )
            for n in names
        ]
    )
    return called


def a4w4() -> tuple[MXBlob, MXBlob]:
    g = torch.Generator().manual_seed(0)
    x, w = torch.randn(48, 192, generator=g), torch.randn(32, 192, generator=g)
    return (
        quantize_rows(x, QuantSpec("e2m1", layout=AITER_A4W4_A)),
        quantize_rows(w, QuantSpec("e2m1", layout=AITER_A4W4_B)),
    )


def a6w6() -> tuple[MXBlob, MXBlob]:
    g = torch.Generator().manual_seed(0)
    spec = QuantSpec("e2m3", hadamard=32, layout=AITER_A6W6)
    return (
        quantize_rows(torch.randn(48, 192, generator=g), spec),
        quantize_rows(torch.randn(32, 192, generator=g), spec),
    )


def test_both_published_forms_of_a4w4_bind() -> None:
    a, b = a4w4()
    positional, keywords = aiter_gemm.arguments(function(OLD_A4W4), a, b)
    got = function(OLD_A4W4)(*positional, **keywords)
    assert tuple(got["out"].shape) == (64, 32)
    assert got["out"].dtype == torch.bfloat16
    assert got["bpreshuffle"] is True
    positional, keywords = aiter_gemm.arguments(function(NEW_A4W4), a, b)
    got = function(NEW_A4W4)(*positional, **keywords)
    assert got["dtype"] == torch.bfloat16
    assert tuple(got["A"].shape) == (48, 96)
    assert tuple(got["B"].shape) == (32, 96)
    assert got["A"].dtype == torch.float4_e2m1fn_x2
    assert tuple(got["A_scale"].shape) == tuple(got["B_scale"].shape) == (256, 8)
    assert got["A_scale"].dtype == torch.float8_e8m0fnu


def test_a6w6_binds_with_the_logical_sizes() -> None:
    a, b = a6w6()
    positional, keywords = aiter_gemm.arguments(function(A6W6), a, b)
    got = function(A6W6)(*positional, **keywords)
    assert (got["M"], got["N"], got["K"]) == (48, 32, 192)
    assert got["A"].numel() == 1 * (2 + 2) * 24576
    assert got["B_scale"].numel() == 1 * (2 + 2) * 1024


@pytest.mark.parametrize(
    ("names", "operands"),
    [(["x", "w"], a4w4), ([*OLD_A4W4[:4], "y"], a4w4), ([*A6W6[:4], "M", "K", "N"], a6w6)],
)
def test_an_unknown_form_is_refused(names: list[str], operands: Any) -> None:
    with pytest.raises(MXUnavailableError, match="unknown call form"):
        aiter_gemm.arguments(function(names), *operands())


def test_refusals_name_the_rule() -> None:
    a, b = a4w4()
    assert aiter_gemm.refusal(a, b) is None
    assert aiter_gemm.refusal(*a6w6()) is None
    assert "aiter_a4w4_a.v1 times aiter_a4w4_b.v1" in str(aiter_gemm.refusal(b, a))
    plain = quantize_rows(torch.ones(32, 64), QuantSpec("e2m3"))
    assert "gemm_a6w6 reads layout aiter_a6w6.v1" in str(aiter_gemm.refusal(plain, plain))
    eight = quantize_rows(torch.ones(32, 64), QuantSpec("e4m3"))
    assert "e2m1 with e2m1 or e2m3 with e2m3" in str(aiter_gemm.refusal(eight, eight))
    odd = quantize_rows(torch.ones(40, 192), QuantSpec("e2m1", layout=AITER_A4W4_A))
    assert "multiples of 16, got 40, 32" in str(aiter_gemm.refusal(odd, b))


def test_results_are_bf16_and_an_aiter_without_the_function_is_an_error() -> None:
    assert aiter_gemm.result_dtype(torch.float32) == torch.bfloat16
    with pytest.raises(MXUnavailableError, match=r"this aiter has no aiter\.ops\.gemm_op_a4w4"):
        aiter_gemm.load("e2m1")


def in_wheel(file: str, name: str) -> ast.FunctionDef:
    """A function of the published wheel, as a syntax tree: nothing of it is run."""
    wheel = os.environ.get("MXFLUX_AITER_WHEEL")
    if not wheel:
        pytest.skip(
            "MXFLUX_AITER_WHEEL is not set: pip download --no-deps amd-aiter gives the wheel"
        )
    source = zipfile.ZipFile(wheel).read(file).decode()
    (found,) = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    return found


def test_the_transcribed_signature_is_that_of_the_wheel() -> None:
    found = in_wheel("aiter/ops/gemm_op_a4w4.py", "gemm_a4w4")
    assert [a.arg for a in found.args.args] == OLD_A4W4


@pytest.mark.parametrize(
    ("file", "name", "view", "permute"),
    [
        (
            "aiter/utility/fp4_utils.py",
            "e8m0_shuffle",
            "sm // 32, 2, 16, sn // 8, 2, 4",
            "0, 3, 5, 2, 4, 1",
        ),
        (
            "aiter/ops/shuffle.py",
            "shuffle_weight",
            "-1, x.shape[-2] // BN, BN, x.shape[-1] // BK, BK // K, K",
            "0, 1, 3, 4, 2, 5",
        ),
    ],
)
def test_the_layouts_are_those_of_the_wheel(file: str, name: str, view: str, permute: str) -> None:
    """The reshapes that `mxflux.mx.layouts.AiterA4W4` makes, B's without the batch in front."""
    calls = [
        (node.func.attr, ", ".join(map(ast.unparse, node.args)))
        for node in ast.walk(in_wheel(file, name))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    assert ("view", view) in calls
    assert [args for attribute, args in calls if attribute == "permute"] == [permute]
