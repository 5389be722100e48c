# SPDX-License-Identifier: Apache-2.0
"""What a linear under an MX recipe must compute, from mxflux.mx's reference alone, in fp64."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mxflux.mx import reference
from mxflux.mx.formats import element_format, scale_mode


def data(*shape: int, seed: int = 0) -> torch.Tensor:
    """bf16 values whose magnitudes spread over a few binades, so that blocks differ in scale."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.randn(*shape, generator=generator) * 1.5
    return (torch.randn(*shape, generator=generator) * spread.exp()).bfloat16()


def packed(
    x: torch.Tensor, fmt: str, mode: str, hadamard: int = 0, block_2d: bool = False
) -> torch.Tensor:
    """x (R, K) as a GEMM sees it once quantized along K: fp64, rotated, K padded to 32."""
    if fmt == "bf16":
        return x.double()
    pad = (0, -x.shape[1] % 32, 0, -x.shape[0] % 32 if block_2d else 0)
    padded = torch.nn.functional.pad(x, pad)
    element = element_format(fmt)
    codes, scales = reference.quantize(
        padded, element, scale_mode(mode), hadamard=hadamard, block_2d=block_2d
    )
    return reference.dequantize(codes, scales, element).double()[: x.shape[0]]


@dataclass(frozen=True)
class Numerics:
    """Formats of the three GEMMs, the scale mode, and whether the FP4 and FP6 ones rotate."""

    fprop: str
    dgrad: str
    wgrad: str
    mode: str
    rotate: bool = False
    weight_block_2d: bool = False

    def product(
        self, fmt: str, a: torch.Tensor, b: torch.Tensor, weight: bool = False
    ) -> torch.Tensor:
        """A (M, K) B (N, K)^T of quantized operands, fp64. weight: B is one."""
        points = {"e2m1": 16, "e2m3": 32, "e3m2": 32}.get(fmt, 0) if self.rotate else 0
        left = packed(a, fmt, self.mode, points)
        right = packed(b, fmt, self.mode, points, block_2d=weight and self.weight_block_2d)
        return left @ right.t()

    def linear(
        self, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, dy: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """y (M, N), dx (M, K) and dw (N, K) of y = x w^T + bias for x (M, K), w (N, K)."""
        y = self.product(self.fprop, x, w, weight=True)
        y = y if bias is None else y + bias.double()
        dx = self.product(self.dgrad, dy, w.t(), weight=True)
        return y, dx, self.product(self.wgrad, dy.t(), x.t())
