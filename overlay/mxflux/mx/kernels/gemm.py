# SPDX-License-Identifier: Apache-2.0
"""The Triton MX GEMM: tl.dot_scaled over E2M1, E4M3 or E5M2 codes and E8M0 scales."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def mx_gemm_kernel(
    a_ptr,
    b_ptr,
    a_scale_ptr,
    b_scale_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_cm,
    FMT_A: tl.constexpr,
    FMT_B: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """c (M, N) = a (M, K) b (N, K)^T.

    a, b: uint8 codes, rows contiguous, two E2M1 codes a byte. Scales (M, K/32), (N, K/32) uint8.
    K a multiple of 32; tails of M, N and K are masked (scale byte 0 and code 0: exact zeros).
    Programs walk GROUP_M row tiles before the next column tile, so that B stays in L2.
    """
    EA: tl.constexpr = 2 if FMT_A == "e2m1" else 1
    EB: tl.constexpr = 2 if FMT_B == "e2m1" else 1
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP_M * tiles_n)
    first = group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    pm = first + (pid % (GROUP_M * tiles_n)) % height
    pn = (pid % (GROUP_M * tiles_n)) // height
    rm = (pm * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    rn = (pn * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    ka = tl.arange(0, BLOCK_K // EA)
    kb = tl.arange(0, BLOCK_K // EB)
    ks = tl.arange(0, BLOCK_K // 32)
    in_m = (rm < M)[:, None]
    in_n = (rn < N)[:, None]
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        # B is loaded as (N, K) rows and transposed: its rows are contiguous along K.
        at_a = a_ptr + rm[:, None] * (K // EA) + (k // EA + ka)[None, :]
        at_b = b_ptr + rn[:, None] * (K // EB) + (k // EB + kb)[None, :]
        a = tl.load(at_a, mask=in_m & (k // EA + ka < K // EA)[None, :], other=0)
        b = tl.load(at_b, mask=in_n & (k // EB + kb < K // EB)[None, :], other=0)
        groups = (k // 32 + ks)[None, :]
        in_k = groups < K // 32
        sa = tl.load(a_scale_ptr + rm[:, None] * (K // 32) + groups, mask=in_m & in_k, other=0)
        sb = tl.load(b_scale_ptr + rn[:, None] * (K // 32) + groups, mask=in_n & in_k, other=0)
        if FMT_A == "e4m3":
            a = a.to(tl.float8e4nv, bitcast=True)
        elif FMT_A == "e5m2":
            a = a.to(tl.float8e5, bitcast=True)
        if FMT_B == "e4m3":
            b = b.to(tl.float8e4nv, bitcast=True)
        elif FMT_B == "e5m2":
            b = b.to(tl.float8e5, bitcast=True)
        acc = tl.dot_scaled(a, sa, FMT_A, tl.trans(b), sb, FMT_B, acc)
    at_c = c_ptr + rm[:, None] * stride_cm + rn[None, :]
    tl.store(at_c, acc.to(c_ptr.dtype.element_ty), mask=in_m & (rn < N)[None, :])
