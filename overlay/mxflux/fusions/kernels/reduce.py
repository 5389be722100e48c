# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: SIM102  (the outer condition is compile-time: the inner one vanishes with it)
"""Fixed-order sum of per-program partials: no atomics, the same bits every time."""

import triton
import triton.language as tl

from mxflux.fusions.kernels import dependent


@triton.jit
def reduce_partials_kernel(
    partial_ptr, out0_ptr, out1_ptr, out2_ptr, parts, columns, blocks,
    OUTPUTS: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, FP64: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """partial [OUTPUTS, parts, columns] fp32 -> out_k [columns]; program = (k, block).

    Outputs past OUTPUTS are never written, so that a tracer sees no aliased writes when the caller
    repeats one.
    """
    ACC: tl.constexpr = tl.float64 if FP64 else tl.float32
    pid = tl.program_id(0)
    k = pid // blocks
    cols = (pid % blocks) * BLOCK_C + tl.arange(0, BLOCK_C)
    ok = cols < columns
    base = tl.cast(k, tl.int64) * parts * columns
    total = tl.zeros([BLOCK_P, BLOCK_C], ACC)
    if DEPENDENT:
        dependent.wait()
    for start in tl.range(0, parts, BLOCK_P):
        part = start + tl.arange(0, BLOCK_P)
        at = base + tl.cast(part, tl.int64)[:, None] * columns + cols[None, :]
        keep = (part < parts)[:, None] & ok[None, :]
        total += tl.load(partial_ptr + at, mask=keep, other=0.0)
    result = tl.sum(total, axis=0)
    if k == 0:
        tl.store(out0_ptr + cols, result.to(out0_ptr.dtype.element_ty), mask=ok)
    if OUTPUTS > 1:
        if k == 1:
            tl.store(out1_ptr + cols, result.to(out1_ptr.dtype.element_ty), mask=ok)
    if OUTPUTS > 2:
        if k == 2:
            tl.store(out2_ptr + cols, result.to(out2_ptr.dtype.element_ty), mask=ok)
