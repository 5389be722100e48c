# SPDX-License-Identifier: Apache-2.0
"""Between latents [B,C,H,W] and packed tokens, and the position ids of both streams."""

from __future__ import annotations

import torch
from torch import Tensor


def _require_even(height: int, width: int) -> None:
    if height % 2 or width % 2 or height <= 0 or width <= 0:
        raise ValueError(
            f"latent size {height}x{width} must be even and positive: tokens are 2x2 patches"
        )


def pack_latents(latents: Tensor) -> Tensor:
    """Pack latents [B,C,H,W] into tokens [B, H/2*W/2, 4C]; channel index is c*4 + row*2 + column.

    Raises ValueError for odd H or W or for a tensor that is not 4-D.
    """
    if latents.dim() != 4:
        raise ValueError(f"latents must be [B,C,H,W], got shape {tuple(latents.shape)}")
    batch, channels, height, width = latents.shape
    _require_even(height, width)
    patches = latents.reshape(batch, channels, height // 2, 2, width // 2, 2)
    return patches.permute(0, 2, 4, 1, 3, 5).reshape(
        batch, height // 2 * (width // 2), channels * 4
    )


def unpack_latents(tokens: Tensor, height: int, width: int) -> Tensor:
    """Inverse of :func:`pack_latents`: tokens [B, H/2*W/2, 4C] to latents [B,C,height,width].

    Raises ValueError when the token count or the channel count does not fit.
    """
    _require_even(height, width)
    batch, length, channels = tokens.shape
    if length != height // 2 * (width // 2) or channels % 4:
        raise ValueError(
            f"tokens {tuple(tokens.shape)} do not unpack to {height}x{width} latents: expected "
            f"{height // 2 * (width // 2)} tokens with a multiple of 4 channels"
        )
    patches = tokens.reshape(batch, height // 2, width // 2, channels // 4, 2, 2)
    return patches.permute(0, 3, 1, 4, 2, 5).reshape(batch, channels // 4, height, width)


def image_ids(
    batch: int, height: int, width: int, *, device: torch.device | str | None = None
) -> Tensor:
    """Ids [batch, H/2*W/2, 3] int32 of an image with latent size height x width.

    Column 0 is zero, column 1 the row and column 2 the column of the 2x2-packed grid.
    Raises ValueError for odd sizes.
    """
    _require_even(height, width)
    rows, columns = height // 2, width // 2
    ids = torch.zeros(rows, columns, 3, dtype=torch.int32, device=device)
    ids[..., 1] = torch.arange(rows, dtype=torch.int32, device=device)[:, None]
    ids[..., 2] = torch.arange(columns, dtype=torch.int32, device=device)[None, :]
    return ids.reshape(1, rows * columns, 3).expand(batch, -1, -1)


def text_ids(batch: int, length: int, *, device: torch.device | str | None = None) -> Tensor:
    """Ids [batch, length, 3] int32 of text tokens: all zero."""
    if length <= 0:
        raise ValueError(f"text length {length} must be positive")
    return torch.zeros(1, length, 3, dtype=torch.int32, device=device).expand(batch, -1, -1)
