# SPDX-License-Identifier: Apache-2.0
"""FP8 with one scale a tensor: the backward of the hybrid recipe (E5M2 gradients, E4M3 the rest).

Emulated: the numbers of FP8 at the speed of bf16, on any device.
"""

from __future__ import annotations

import torch

GRADIENT, OPERAND = torch.float8_e5m2, torch.float8_e4m3fn


def quantize(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
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


def matmul(
    a: tuple[torch.Tensor, torch.Tensor], b: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """Product of two quantized matrices, fp32, accumulated in fp32."""
    (x, x_scale), (y, y_scale) = a, b
    if x.is_cuda:
        return torch.mm(x, y, out_dtype=torch.float32) * (x_scale * y_scale)
    return (x.float() @ y.float()) * (x_scale * y_scale)
