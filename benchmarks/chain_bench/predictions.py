# SPDX-License-Identifier: Apache-2.0
"""Targets, and what was predicted before the first run of each plan."""

from __future__ import annotations

TARGETS = {
    "ln": 0.65, "ln shared": 0.65, "ln gated": 0.65, "mlp forward": 0.8, "mlp backward": 0.8,
    "qkv": 0.65, "row only": 0.8,
}  # fmt: skip
"""Fused over unfused, at most."""

SHAPE = (512, 64)

PREDICTED = {
    "mxfp6": {
        "ln": (175, 239), "ln shared": (175, 375), "mlp forward": (520, 1294),
        "mlp backward": (600, 1307), "qkv": (520, 817), "row only": (520, 950),
    },
    "mxfp6-unrotated": {
        "ln": (241, 239), "ln shared": (241, 375), "ln gated": (369, 337),
        "mlp forward": (890, 1956), "mlp backward": (937, 1341), "qkv": (960, 816),
        "row only": (601, 1105),
    },
    "mxfp4-unrotated": {
        "ln": (247, 236), "ln shared": (247, 369), "ln gated": (375, 334),
        "mlp forward": (925, 1926), "mlp backward": (964, 1329), "qkv": (980, 807),
        "row only": (593, 1080),
    },
}  # fmt: skip
"""Plan and chain -> fused and unfused microseconds at 512x64.

mxfp6 took the packers' times from a table without rotations and memory as the limit. The unrotated
plans: unfused is the rotated run's table with the packers of docs/results/packers-h200.md (dual 136
and 133 us, rows 74 and 73 us for 32768 x 3072) in place of its own; fused is the SASS instructions
an element of the compiled kernel at 33.4e12 a second, at the share of that rate which the rotated
kernel of the same chain reached (LN 0.70, GELU 0.585 and 0.70, QKV 0.56), and 49 us for the
statistics of the norm.
"""


def predicted(plan: str, key: str, shape: tuple[int, int]) -> str:
    """For the table: "fused / unfused = ratio", or nothing where nothing was predicted."""
    found = PREDICTED.get(plan, {}).get(key) if shape == SHAPE else None
    if found is None:
        return ""
    fused, unfused = found
    return f"{fused} / {unfused} = {fused / unfused:.2f}"
