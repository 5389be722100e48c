# SPDX-License-Identifier: Apache-2.0
"""RMSNorm over a head and LayerNorm with AdaLN modulation, the unfused forms."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """y = x / sqrt(mean(x^2) + eps) * weight over the last dimension.

    All arithmetic is fp32 at least, with one rounding to x.dtype at the end: unlike
    torch.nn.RMSNorm the result keeps x.dtype under autocast, which the attention kernels need.
    """

    def __init__(
        self, size: int, eps: float, *, dtype: torch.dtype, device: torch.device | None = None
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size, dtype=dtype, device=device))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x [..., size]; same shape and dtype."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        rstd = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        return (wide * rstd * self.weight.to(wide.dtype)).to(x.dtype)


def layer_norm_modulate(x: Tensor, shift: Tensor, scale: Tensor, eps: float) -> Tensor:
    """LayerNorm(x) * (1 + scale) + shift; x [S,B,H], shift and scale [B,H]; x.dtype.

    LayerNorm has no affine parameters. Source: DiT adaLN (arXiv 2212.09748).
    """
    normalized = nn.functional.layer_norm(x, x.shape[-1:], eps=eps)
    return torch.addcmul(shift, normalized, 1 + scale)


def gated_residual(residual: Tensor, gate: Tensor, update: Tensor) -> Tensor:
    """residual + gate * update; residual and update [S,B,H], gate [B,H]."""
    return torch.addcmul(residual, gate, update)
