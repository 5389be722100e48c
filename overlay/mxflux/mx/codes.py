# SPDX-License-Identifier: Apache-2.0
"""Codes of 4, 6 or 8 bits into bytes without gaps: element 0 in the low bits, little endian."""

from __future__ import annotations

import torch


def pack_codes(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """codes (R, K) uint8, K a multiple of 32 -> bytes (R, K * bits / 8)."""
    rows, cols = codes.shape
    if bits == 8:
        return codes.contiguous()
    if bits == 4:
        return codes[:, 0::2] | (codes[:, 1::2] << 4)
    c = codes.int().reshape(rows, cols // 4, 4)
    word = c[..., 0] | (c[..., 1] << 6) | (c[..., 2] << 12) | (c[..., 3] << 18)
    three = torch.stack((word & 255, (word >> 8) & 255, word >> 16), -1)
    return three.to(torch.uint8).reshape(rows, cols // 4 * 3)


def unpack_codes(data: torch.Tensor, bits: int) -> torch.Tensor:
    """The inverse: bytes (R, K * bits / 8) -> codes (R, K) uint8."""
    rows, size = data.shape
    if bits == 8:
        return data.contiguous()
    if bits == 4:
        return torch.stack((data & 15, data >> 4), -1).reshape(rows, size * 2)
    b = data.int().reshape(rows, size // 3, 3)
    word = b[..., 0] | (b[..., 1] << 8) | (b[..., 2] << 16)
    four = torch.stack([(word >> shift) & 63 for shift in (0, 6, 12, 18)], -1)
    return four.to(torch.uint8).reshape(rows, size // 3 * 4)
