# SPDX-License-Identifier: Apache-2.0
"""An independent MX quantizer in numpy and ml_dtypes, float64 inside, and awkward data."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

DTYPES = {
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
#: name -> bits, emax, largest, mantissa bits; written out here so that a slip in formats.py shows.
SHAPE = {
    "e2m1": (4, 2, 6.0, 1),
    "e2m3": (6, 2, 7.5, 3),
    "e3m2": (6, 4, 28.0, 2),
    "e4m3": (8, 8, 448.0, 3),
    "e5m2": (8, 15, 57344.0, 2),
}


def finite_bfloat16() -> np.ndarray:
    """Every finite bf16 value, as float32."""
    values = (np.arange(65536, dtype=np.uint32) << 16).view(np.float32)
    return values[np.isfinite(values)]


def encode(x: np.ndarray, fmt: str) -> np.ndarray:
    """Codes of x: clamped, then nearest even by ml_dtypes."""
    bits, _, largest, _ = SHAPE[fmt]
    codes = np.clip(x, -largest, largest).astype(DTYPES[fmt]).view(np.uint8)
    return codes & ((1 << bits) - 1)


def scale(amax: float, fmt: str, mode: str) -> int:
    """The scale byte from the value, by frexp in float64: no bit tricks."""
    _, emax, largest, mantissa_bits = SHAPE[fmt]
    if not np.isfinite(amax):
        return 255
    if amax == 0:
        return 0
    fraction, exponent = np.frexp(np.float64(amax))  # amax = fraction * 2**exponent, [0.5, 1)
    fraction, exponent = fraction * 2, int(exponent) - 1
    if exponent < -126:
        # fp32 subnormals have exponent field 0 and no hidden bit
        fraction, exponent = float(amax) * 2.0**126, -127
    if mode == "floor":
        power = exponent - emax
    elif mode == "ceil":
        power = exponent + (fraction > 1 if exponent > -127 else fraction > 0) - emax
    elif mode == "even":
        step = 2.0**-mantissa_bits
        carry = fraction + step / 2 >= 2 if exponent > -127 else fraction + step / 2 >= 1
        power = exponent + carry - emax
    else:
        descaled = np.float32(amax) * np.float32(1.0 / largest)
        power = int(np.ceil(np.log2(np.float64(descaled)))) if descaled else -127
        power = max(power, -127)
    return int(np.clip(power + 127, 0, 254))


def quantize(x: np.ndarray, fmt: str, mode: str = "floor") -> tuple[np.ndarray, np.ndarray]:
    """x (R, K) float32 -> codes (R, K), scales (R, K / 32)."""
    blocks = x.reshape(x.shape[0], -1, 32)
    amax = np.abs(blocks).max(-1)  # numpy's max keeps NaN
    scales = np.vectorize(lambda a: scale(a, fmt, mode), otypes=[np.uint8])(amax)
    with np.errstate(all="ignore"):
        scaled = (blocks.astype(np.float64) * 2.0 ** (127.0 - scales)[..., None]).astype(np.float32)
    scaled = np.where((scales == 255)[..., None], 0, scaled)
    return encode(scaled, fmt).reshape(x.shape), scales


def awkward(
    rows: int, cols: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16
) -> torch.Tensor:
    """Rows of zeros, -0, NaN, infinities, subnormals, the largest values, exact powers, noise."""
    generator = torch.Generator().manual_seed(seed)
    power = torch.randint(-20, 20, (rows, 1), generator=generator).float()
    x = torch.randn(rows, cols, generator=generator) * torch.exp2(power)
    fills = (0.0, -0.0, 3.3e38, 2.0**-126, 1e-40, 2.0**-133, 1.9999, 7.75, -7.5, 2.0**-120, 5.0)
    for row, value in enumerate(fills):
        x[row % rows] = value
    for row, value in ((3, float("nan")), (5, float("inf")), (7, float("-inf")), (9, 1e-39)):
        x[row % rows, (7 * row) % cols] = value
    x[11 % rows, 1::2] = 0
    return x.to(dtype)
