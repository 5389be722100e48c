# SPDX-License-Identifier: Apache-2.0
"""MX quantization in plain torch: the definition that every packer is compared with bit by bit."""

from __future__ import annotations

import functools

import torch

from mxflux.mx.formats import BLOCK, SCALE_BIAS, SCALE_NAN, ElementFormat, ScaleMode
from mxflux.mx.hadamard import rotate
from mxflux.mx.philox import random_words

_MANTISSA = 0x7FFFFF
_MAGNITUDE = 0x7FFFFFFF


def magnitude_bits(x: torch.Tensor) -> torch.Tensor:
    """fp32 bits of |x| as int32. They order like the values, with NaN above infinity."""
    return x.float().contiguous().view(torch.int32) & _MAGNITUDE


def scale_byte(bits: torch.Tensor, fmt: ElementFormat, mode: ScaleMode) -> torch.Tensor:
    """E8M0 bytes (uint8) from the fp32 bits (int32) of block maxima; formulas in `ScaleMode`."""
    exponent, mantissa = bits >> 23, bits & _MANTISSA
    if mode is ScaleMode.FLOOR:
        scale = exponent - fmt.emax
    elif mode is ScaleMode.CEIL:
        scale = exponent + (mantissa > 0) - fmt.emax
    elif mode is ScaleMode.EVEN:
        scale = ((bits + (1 << (22 - fmt.mantissa_bits))) >> 23) - fmt.emax
    else:
        reciprocal = torch.tensor(1.0 / fmt.largest, dtype=torch.float32, device=bits.device)
        descaled = magnitude_bits(bits.view(torch.float32) * reciprocal)
        exponent_of, rest = descaled >> 23, descaled & _MANTISSA
        scale = exponent_of + torch.where(exponent_of == 0, rest > 0x400000, rest != 0)
    finite = exponent != SCALE_NAN
    return torch.where(finite, scale.clamp(0, 254), SCALE_NAN).to(torch.uint8)


def power_of_two(exponent: torch.Tensor) -> torch.Tensor:
    """2.0 ** exponent in fp32 for exponents (int32) in [-127, 127], exact, subnormals included."""
    normal = (exponent + SCALE_BIAS) << 23
    return (
        torch.where(exponent == -SCALE_BIAS, 0x400000, normal).to(torch.int32).view(torch.float32)
    )


def encode(y: torch.Tensor, fmt: ElementFormat, random: torch.Tensor | None = None) -> torch.Tensor:
    """Codes (uint8) of y (fp32): nearest, ties to even, beyond `largest` clamped with its sign.

    random: words (uint32 held in int64, shape of y); the magnitude is then rounded up with a
    probability equal to its distance from the lower neighbour, in steps of 2**-(23 - mb).
    -0 and negative values that round to zero keep the sign bit. NaN has no code: it is refused by
    the block's scale, see `quantize`.
    """
    drop = 23 - fmt.mantissa_bits
    sign = (y.contiguous().view(torch.int32) < 0).to(torch.int32) * fmt.sign_mask
    a = y.abs().clamp(max=fmt.largest)
    bits = magnitude_bits(a)
    if random is None:
        steps = torch.round(a.clamp(max=fmt.min_normal) / fmt.min_subnormal).to(torch.int32)
        kept = (bits + ((1 << (drop - 1)) - 1) + ((bits >> drop) & 1)) >> drop
    else:
        word = (random >> (32 - drop)).to(torch.int32)
        fixed = a.clamp(max=fmt.min_normal) * (2.0**drop / fmt.min_subnormal)
        steps = (fixed.to(torch.int32) + word) >> drop
        kept = (bits + word) >> drop
    code = torch.where(
        a < fmt.min_normal, steps, kept - ((SCALE_BIAS - fmt.bias) << fmt.mantissa_bits)
    )
    return (code.clamp(max=fmt.largest_code) | sign).to(torch.uint8)


@functools.cache
def code_values(fmt: ElementFormat) -> torch.Tensor:
    """The value (fp32) of every code, indexed by code; E4M3 and E5M2 hold NaN, E5M2 infinities."""
    code = torch.arange(1 << fmt.bits)
    field = (code >> fmt.mantissa_bits) & ((1 << fmt.exponent_bits) - 1)
    mantissa = (code & ((1 << fmt.mantissa_bits) - 1)).double() / 2**fmt.mantissa_bits
    exponent = field.clamp(min=1).double() - fmt.bias
    value = ((field > 0).double() + mantissa) * torch.exp2(exponent)
    beyond = (code & (fmt.sign_mask - 1)) > fmt.largest_code
    value[beyond] = float("nan")
    if fmt.name == "e5m2":
        value[(code & (fmt.sign_mask - 1)) == fmt.largest_code + 1] = float("inf")
    return torch.where((code & fmt.sign_mask) > 0, -value, value).float()


def decode(codes: torch.Tensor, fmt: ElementFormat) -> torch.Tensor:
    """Values (fp32) of codes (uint8)."""
    return code_values(fmt).to(codes.device)[codes.long()]


def block_maxima(x: torch.Tensor, block_2d: bool) -> torch.Tensor:
    """fp32 bits (int32) of the largest magnitude of each block of x (R, K): (R, K / 32).

    block_2d: one maximum for each 32 x 32 square (R a multiple of 32), repeated for its rows.
    """
    rows, cols = x.shape
    bits = magnitude_bits(x).reshape(rows, cols // BLOCK, BLOCK).amax(-1)
    if not block_2d:
        return bits
    square = bits.reshape(rows // BLOCK, BLOCK, cols // BLOCK).amax(1)
    return square.repeat_interleave(BLOCK, 0)


def quantize(
    x: torch.Tensor,
    fmt: ElementFormat,
    mode: ScaleMode = ScaleMode.FLOOR,
    *,
    hadamard: int = 0,
    block_2d: bool = False,
    rng: torch.Tensor | None = None,
    stream: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """x (R, K), K a multiple of 32 -> codes (R, K) uint8 and scales (R, K / 32) uint8.

    bf16 and fp16 are widened to fp32 without loss. Each block is rotated if asked (`rotate`), its
    scale byte s follows from its largest magnitude, its codes are `encode(fp32(v * 2**(127-s)))`.
    A block that holds an infinity or a NaN, or overflows in the rotation, has scale 255 and codes
    0: it dequantizes to NaN. A zero block has scale 0 and codes +-0. rng: int64 (2,) [seed, offset]
    turns on stochastic rounding with the words of `random_words`.
    """
    rows, cols = x.shape
    values = rotate(x.float(), hadamard)
    scales = scale_byte(block_maxima(values, block_2d), fmt, mode)
    inverse = power_of_two(SCALE_BIAS - scales.int().clamp(max=SCALE_NAN - 1))
    blocks = values.reshape(rows, cols // BLOCK, BLOCK)
    bad = (scales == SCALE_NAN)[..., None]
    scaled = torch.where(bad, 0.0, blocks * inverse[..., None]).reshape(rows, cols)
    random = None if rng is None else random_words(rows, cols, rng.to(x.device), stream)
    return encode(scaled, fmt, random), scales


def dequantize(codes: torch.Tensor, scales: torch.Tensor, fmt: ElementFormat) -> torch.Tensor:
    """Values (fp32) of codes (R, K) under scales (R, K / 32); exact, NaN where the scale is 255.

    A value can round up to 2**128 and is then infinite; only CEIL, EVEN and RCEIL reach it.
    """
    rows, cols = codes.shape
    factor = power_of_two(scales.int().clamp(max=SCALE_NAN - 1) - SCALE_BIAS)
    factor = torch.where(scales == SCALE_NAN, float("nan"), factor)
    blocks = decode(codes, fmt).reshape(rows, cols // BLOCK, BLOCK)
    return (blocks * factor[..., None]).reshape(rows, cols)
