# SPDX-License-Identifier: Apache-2.0
"""Philox 4x32-10 in torch: the random words behind stochastic rounding.

J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import torch

_ROUNDS = 10
_MULTIPLY_0, _MULTIPLY_1 = 0xD2511F53, 0xCD9E8D57
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF


def _product(a: torch.Tensor, b: int) -> tuple[torch.Tensor, torch.Tensor]:
    """High and low 32 bits of a * b; both unsigned 32-bit, held in int64."""
    # Two 16-bit halves: a 64-bit product of two 32-bit words does not fit a signed int64.
    low = (a & 0xFFFF) * b
    high = (a >> 16) * b + (low >> 16)
    return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)


def philox(counter: tuple[torch.Tensor, ...], key: tuple[int, int]) -> tuple[torch.Tensor, ...]:
    """Four words (uint32 in int64) for a counter of four words (broadcastable, same holding)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        high0, low0 = _product(c0, _MULTIPLY_0)
        high1, low1 = _product(c2, _MULTIPLY_1)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL_0) & _LOW, (k1 + _WEYL_1) & _LOW
    return c0, c1, c2, c3


def random_words(rows: int, cols: int, rng: torch.Tensor, stream: int) -> torch.Tensor:
    """Random words (rows, cols), uint32 held in int64, for a blob of that padded shape.

    rng: int64 (2,), [seed, offset]. Word (r, c) is lane c % 4 of the Philox block whose counter is
    ((r * cols + c) // 4, offset with `stream` in its top bit) and whose key is the seed. `stream`
    is 0 for row blobs and 1 for column blobs, so that the two roundings of one value differ.
    """
    seed, offset = (int(v) for v in rng.tolist())
    index = torch.arange(rows * cols // 4, dtype=torch.int64, device=rng.device)
    low, high = index & _LOW, index >> 32
    offset_low = torch.full_like(index, offset & _LOW)
    offset_high = torch.full_like(index, ((offset >> 32) & 0x7FFFFFFF) | (stream << 31))
    words = philox((low, high, offset_low, offset_high), (seed & _LOW, (seed >> 32) & _LOW))
    return torch.stack(words, -1).reshape(rows, cols)
