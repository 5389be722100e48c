# SPDX-License-Identifier: Apache-2.0
"""The backward GEMMs that are not in an MX format: bf16, or FP8 with one scale a tensor.

FP8 is emulated (gradient E5M2, operand E4M3): its numbers at the speed of bf16, on any device.
"""

from __future__ import annotations

import torch

from mxflux.mx import tally
from mxflux.mx.errors import MXValueError

GRADIENT, OPERAND = torch.float8_e5m2, torch.float8_e4m3fn
#: Precision -> the text a census shows for it.
LABELS = {"fp8": "fp8-e5m2/fp8-e4m3", "bf16": "bf16"}


def quantize_fp8(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """x -> its FP8 values as bf16 (exact) and the fp32 scale: x is about value * scale.

    The largest magnitude maps to the largest FP8 value. A zero tensor has scale 1. An infinite or
    NaN element makes the scale, hence every product, NaN.
    """
    largest = torch.finfo(dtype).max
    amax = x.abs().amax().float() if x.numel() else x.new_zeros((), dtype=torch.float32)
    scale = torch.where(amax > 0, amax / largest, 1.0)
    scale = torch.where(amax.isfinite(), scale, float("nan"))
    values = (x.float() / scale).clamp(-largest, largest).to(dtype)
    return values.to(torch.bfloat16), scale


def _mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """bf16 product in fp32, accumulated in fp32."""
    return torch.mm(a, b, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float()


def _matmul(
    a: torch.Tensor, b: torch.Tensor, precision: str, site: torch.Tensor | None, direction: str
) -> torch.Tensor:
    if precision not in LABELS:
        raise MXValueError(f"precision {precision!r}; valid: {', '.join(LABELS)}")
    if site is not None:
        tally.record_gemm(site, direction, LABELS[precision], "torch")
    if precision == "bf16":
        return _mm(a.to(torch.bfloat16), b.to(torch.bfloat16))
    (x, x_scale), (y, y_scale) = quantize_fp8(a, GRADIENT), quantize_fp8(b, OPERAND)
    return _mm(x, y) * (x_scale * y_scale)


_matmul_op = torch.library.custom_op("mxflux::high_matmul", _matmul, mutates_args=())


@_matmul_op.register_fake
def _matmul_fake(
    a: torch.Tensor,
    b: torch.Tensor,
    precision: str,  # noqa: ARG001 - only the shape of the result is wanted
    site: torch.Tensor | None,  # noqa: ARG001
    direction: str,  # noqa: ARG001
) -> torch.Tensor:
    return a.new_empty((a.shape[0], b.shape[1]), dtype=torch.float32)


def high_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    precision: str,
    site: torch.Tensor | None = None,
    direction: str = "dgrad",
) -> torch.Tensor:
    """Gradient a (M, K) times operand b (K, N) in fp32; both rounded to `precision` first.

    precision: bf16 or fp8. site, direction: who is counted in a census. Opaque to torch.compile.
    """
    call = _matmul_op if torch.compiler.is_compiling() else _matmul
    return call(a, b, precision, site, direction)
