# SPDX-License-Identifier: Apache-2.0
"""The block-diagonal orthonormal Hadamard rotation, in one fixed order of fp32 operations."""

from __future__ import annotations

import math

import torch

from mxflux.mx.errors import MXValueError

SIZES = (0, 16, 32)


def normalization(points: int) -> tuple[float, float]:
    """Factors before and after the butterflies; their product is 1 / sqrt(points).

    The first is 1 / points, exact, so that no partial sum overflows unless the result does.
    """
    return 1.0 / points, math.sqrt(points)


def rotate(x: torch.Tensor, points: int) -> torch.Tensor:
    """x (..., K) fp32 times the orthonormal Sylvester-Hadamard matrix in groups of `points`.

    K must be a multiple of `points` (16 or 32; 0 returns x). The matrix is symmetric and its own
    inverse, so a second call undoes the first up to rounding. Butterflies run at distance 1, 2, 4,
    .. in fp32; the Triton packers run the same operations in the same order, hence equal bits.
    """
    if points == 0 or x.numel() == 0:
        return x
    if points not in SIZES:
        raise MXValueError(f"Hadamard of {points!r} points is not offered; valid: {SIZES}")
    before, after = normalization(points)
    y = x.float() * before
    distance = 1
    while distance < points:
        pairs = y.reshape(*x.shape[:-1], -1, 2, distance)
        a, b = pairs.unbind(-2)
        y = torch.stack((a + b, a - b), -2).reshape(x.shape)
        distance *= 2
    return y * after
