# SPDX-License-Identifier: Apache-2.0
"""Targets, and what was predicted before the run."""

from __future__ import annotations

TARGETS = {
    "ln": 0.65, "ln shared": 0.65, "ln gated": 0.65, "mlp forward": 0.8, "mlp backward": 0.8,
    "qkv": 0.65, "row only": 0.8,
}  # fmt: skip
"""Fused over unfused, at most."""

SHAPE = (512, 64)

PREDICTED = {
    "mxfp6": {
        "ln": (263, 283), "ln shared": (263, 463), "ln gated": (391, 381),
        "mlp forward": (865, 1120), "mlp backward": (1015, 1517), "qkv": (1157, 945),
        "row only": (780, 1480),
    },
    "mxfp4": {
        "ln": (228, 244), "ln shared": (228, 385), "ln gated": (356, 342),
        "mlp forward": (740, 946), "mlp backward": (1885, 2461), "qkv": (1605, 1660),
        "row only": (545, 1130),
    },
    "mxfp6-unrotated": {
        "ln": (207, 228), "ln shared": (207, 353), "ln gated": (335, 326),
        "mlp forward": (608, 900), "mlp backward": (742, 1297), "qkv": (907, 780),
        "row only": (585, 1016),
    },
    "mxfp4-unrotated": {
        "ln": (218, 232), "ln shared": (218, 361), "ln gated": (346, 330),
        "mlp forward": (650, 898), "mlp backward": (790, 1313), "qkv": (930, 790),
        "row only": (575, 1050),
    },
}  # fmt: skip
"""Plan and chain -> fused and unfused microseconds at 512x64, for the kernels of 2026-12-01.

Fused: the SASS instructions an element of the compiled kernel at 33.4e12 a second (132 SMs, 128
lanes, 1.98 GHz), at the share of that rate which the chain reached in the run of 2026-11-30 (LN
0.73, GELU 0.73, its gradient 0.72 or, with random words, 0.58, QKV 0.55; unrotated LN 0.70), and
49 us for the statistics of the norm, 177 with a gated residual in front. Unfused: the elementwise
kernels of that run, and the packers by their instructions in the same way (dual, 32768 x 3072:
rotated 180 and 141 us, unrotated 125 and 129, stochastic 416). Of the GELU's, 1012 us are taken off
for the bias, which that run had on this side: 2.15 ms for the 856 million biases of a 12B step.
"""


def predicted(plan: str, key: str, shape: tuple[int, int]) -> str:
    """For the table: "fused / unfused = ratio", or nothing where nothing was predicted."""
    found = PREDICTED.get(plan, {}).get(key) if shape == SHAPE else None
    if found is None:
        return ""
    fused, unfused = found
    return f"{fused} / {unfused} = {fused / unfused:.2f}"
