# SPDX-License-Identifier: Apache-2.0
"""Triton's CPU interpreter, made to round fp32 -> bf16/fp8 to nearest even as the GPUs do.

Import it before any module that defines kernels. The stock interpreter truncates, so 49% of random
bf16 stores differ (triton #8322). A process that has imported this can no longer compile kernels:
tests that cross-compile start their own process.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

_TARGETS = {
    tl.bfloat16: (torch.bfloat16, torch.int16, np.uint16),
    tl.float8e4nv: (torch.float8_e4m3fn, torch.uint8, np.uint8),
    tl.float8e5: (torch.float8_e5m2, torch.uint8, np.uint8),
}
_NEAREST = (None, interpreter._ir.ROUNDING_MODE.RTNE)
_stock = interpreter._convert_float


def _convert_float(value, src, dst, rounding_mode):  # type: ignore[no-untyped-def]
    if src == tl.float32 and dst in _TARGETS and rounding_mode in _NEAREST:
        to, raw, out = _TARGETS[dst]
        bits = torch.from_numpy(np.ascontiguousarray(value)).to(to).view(raw)
        return bits.numpy().view(out).reshape(np.shape(value))
    if src == tl.bfloat16 and dst == tl.float32:
        return (np.asarray(value).view(np.uint16).astype(np.uint32) << 16).reshape(np.shape(value))
    return _stock(value, src, dst, rounding_mode)


interpreter._convert_float = _convert_float
