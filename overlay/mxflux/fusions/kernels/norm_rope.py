# SPDX-License-Identifier: Apache-2.0
"""QK RMSNorm + interleaved RoPE: one kernel a direction, for one tensor and for packed QKV.

A *group* is the rows that share one row of the RoPE table: the batch*heads rows of a position, or
the heads of one (position, sample) when the table has a batch. A *tile* is BLOCK_M rows of one
group, so that cos and sin are loaded once a tile and every row index is a division away from its
(s, b, h).

    r = rsqrt(mean(x^2) + eps); n = x*r*w;  o_even = n_even*c - n_odd*s;  o_odd = n_odd*c + n_even*s
    dn_even = g_even*c + g_odd*s;  dn_odd = g_odd*c - g_even*s;  xh = x*r
    dw = sum_rows dn*xh;  dx = r*(dn*w - xh*mean(dn*w*xh))
"""

import triton
import triton.language as tl

from mxflux.fusions.kernels import dependent


@triton.jit
def _offsets(
    group, local, batch, heads, stride_s, stride_b, stride_h, TABLE_PER_SAMPLE: tl.constexpr
):
    """Element offset of each row of a tile in a [S, B, heads, *] tensor, int64 (storages pass 2
    GiB).
    """
    if TABLE_PER_SAMPLE:
        s = group // batch
        b = group % batch
        h = local
    else:
        s = group
        b = local // heads
        h = local % heads
    row = tl.cast(b, tl.int64) * stride_b + tl.cast(h, tl.int64) * stride_h
    return row + tl.cast(s, tl.int64) * stride_s


@triton.jit
def _table_row(
    table_ptr, group, batch, stride_s, stride_b,
    D: tl.constexpr, BLOCK_D: tl.constexpr, TABLE_PER_SAMPLE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """cos and sin of the tile's position, [1, BLOCK_D/2] each; the table row is [cos(D/2) |
    sin(D/2)].
    """
    if TABLE_PER_SAMPLE:
        base = (
            tl.cast(group // batch, tl.int64) * stride_s
            + tl.cast(group % batch, tl.int64) * stride_b
        )
    else:
        base = tl.cast(group, tl.int64) * stride_s
    half = tl.arange(0, BLOCK_D // 2)[None, :]
    keep = half < D // 2
    cos = tl.load(table_ptr + base + half, mask=keep, other=0.0).to(ACC)
    sin = tl.load(table_ptr + base + D // 2 + half, mask=keep, other=0.0).to(ACC)
    return cos, sin


@triton.jit
def _norm_rotate(
    x, w, cos, sin, D: tl.constexpr, EPS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    rstd = tl.rsqrt(tl.sum(x * x, axis=1) / D + EPS)
    n = x * rstd[:, None] * w
    even, odd = tl.split(tl.reshape(n, [BLOCK_M, BLOCK_D // 2, 2]))
    rotated = tl.join(even * cos - odd * sin, odd * cos + even * sin)
    return tl.reshape(rotated, [BLOCK_M, BLOCK_D]), rstd


@triton.jit
def norm_rotate_backward(
    g, x, w, cos, sin, rstd, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr
):
    """(dx, dn*xh): the second summed over rows is dw.

    Fused in so many words: no bit hangs on what a compiler contracts, here or in front of a packer.
    """
    even, odd = tl.split(tl.reshape(g, [BLOCK_M, BLOCK_D // 2, 2]))
    rotated = tl.join(tl.fma(even, cos, odd * sin), tl.fma(odd, cos, -(even * sin)))
    dn = tl.reshape(rotated, [BLOCK_M, BLOCK_D])
    xh = x * rstd[:, None]
    gw = dn * w
    mean = (tl.sum(gw * xh, axis=1) / D)[:, None]
    dx = rstd[:, None] * tl.fma(-xh, mean, gw)
    return dx, dn * xh


@triton.jit
def norm_rope_forward_kernel(
    x_ptr, weight_ptr, table_ptr, out_ptr, rstd_ptr,
    x_stride_s, x_stride_b, x_stride_h, table_stride_s, table_stride_b,
    batch, heads, group_rows, tiles,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    TABLE_PER_SAMPLE: tl.constexpr, EPS: tl.constexpr, FP64: tl.constexpr,
):  # fmt: skip
    """x [S,B,heads,D] (any strides, last 1) -> out [S,B,heads,D] contiguous, rstd [S*B*heads]."""
    ACC: tl.constexpr = tl.float64 if FP64 else tl.float32
    pid = tl.program_id(0)
    group = pid // tiles
    local = (pid % tiles) * BLOCK_M + tl.arange(0, BLOCK_M)
    ok = local < group_rows
    cols = tl.arange(0, BLOCK_D)[None, :]
    keep = ok[:, None] & (cols < D)
    tile_cols = (
        tl.zeros([BLOCK_M, 1], tl.int32) + cols
    )  # a weight per row: no exchange between warps
    at = (
        _offsets(group, local, batch, heads, x_stride_s, x_stride_b, x_stride_h, TABLE_PER_SAMPLE)[
            :, None
        ]
        + cols
    )
    row = tl.cast(group, tl.int64) * group_rows + local
    x = tl.load(x_ptr + at, mask=keep, other=0.0).to(ACC)
    w = tl.load(weight_ptr + tile_cols, mask=keep, other=0.0).to(ACC)
    cos, sin = _table_row(
        table_ptr, group, batch, table_stride_s, table_stride_b, D, BLOCK_D, TABLE_PER_SAMPLE, ACC
    )
    o, rstd = _norm_rotate(x, w, cos, sin, D, EPS, BLOCK_M, BLOCK_D)
    tl.store(out_ptr + row[:, None] * D + cols, o.to(out_ptr.dtype.element_ty), mask=keep)
    tl.store(rstd_ptr + row, rstd, mask=ok)


@triton.jit
def norm_rope_backward_kernel(
    g_ptr, x_ptr, weight_ptr, table_ptr, rstd_ptr, dx_ptr, partial_ptr,
    g_stride_s, g_stride_b, g_stride_h, x_stride_s, x_stride_b, x_stride_h,
    table_stride_s, table_stride_b,
    batch, heads, group_rows, tiles, total_tiles, programs,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    TABLE_PER_SAMPLE: tl.constexpr, STAGES: tl.constexpr, FP64: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """dx [S,B,heads,D] contiguous; partial dweight [programs, D], one row a program, summed later
    in order.
    """
    ACC: tl.constexpr = tl.float64 if FP64 else tl.float32
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK_D)[None, :]
    w = tl.load(weight_ptr + cols, mask=cols < D, other=0.0).to(ACC)
    dw = tl.zeros([BLOCK_M, BLOCK_D], ACC)
    for tile in tl.range(pid, total_tiles, programs, num_stages=STAGES):
        group = tile // tiles
        local = (tile % tiles) * BLOCK_M + tl.arange(0, BLOCK_M)
        ok = local < group_rows
        keep = ok[:, None] & (cols < D)
        row = tl.cast(group, tl.int64) * group_rows + local
        at_x = (
            _offsets(
                group, local, batch, heads, x_stride_s, x_stride_b, x_stride_h, TABLE_PER_SAMPLE
            )[:, None]
            + cols
        )
        at_g = (
            _offsets(
                group, local, batch, heads, g_stride_s, g_stride_b, g_stride_h, TABLE_PER_SAMPLE
            )[:, None]
            + cols
        )
        x = tl.load(x_ptr + at_x, mask=keep, other=0.0).to(ACC)
        g = tl.load(g_ptr + at_g, mask=keep, other=0.0).to(ACC)
        rstd = tl.load(rstd_ptr + row, mask=ok, other=0.0)
        cos, sin = _table_row(
            table_ptr, group, batch, table_stride_s, table_stride_b,
            D, BLOCK_D, TABLE_PER_SAMPLE, ACC,
        )  # fmt: skip
        dx, part = norm_rotate_backward(g, x, w, cos, sin, rstd, D, BLOCK_M, BLOCK_D)
        dw += part
        tl.store(dx_ptr + row[:, None] * D + cols, dx.to(dx_ptr.dtype.element_ty), mask=keep)
    if DEPENDENT:
        dependent.launch_next()
    at = tl.cast(pid, tl.int64) * D + cols
    tl.store(partial_ptr + at, tl.sum(dw, axis=0)[None, :], mask=cols < D)


@triton.jit
def qkv_forward_kernel(
    mixed_ptr, q_weight_ptr, k_weight_ptr, table_ptr, q_ptr, k_ptr, v_ptr, rstd_ptr,
    mixed_stride_s, mixed_stride_b, mixed_stride_h, table_stride_s, table_stride_b,
    batch, heads, group_rows, tiles, rows,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    TABLE_PER_SAMPLE: tl.constexpr, EPS: tl.constexpr, FP64: tl.constexpr,
):  # fmt: skip
    """mixed [S,B,heads,(q D|k D|v D)] -> q, k rotated, v copied bit for bit, [S,B,heads,D] each;
    rstd [2, rows].

    All three loads are issued before the first store: Triton pointers may alias, so the compiler
    cannot.
    """
    ACC: tl.constexpr = tl.float64 if FP64 else tl.float32
    pid = tl.program_id(0)
    group = pid // tiles
    local = (pid % tiles) * BLOCK_M + tl.arange(0, BLOCK_M)
    ok = local < group_rows
    cols = tl.arange(0, BLOCK_D)[None, :]
    keep = ok[:, None] & (cols < D)
    tile_cols = (
        tl.zeros([BLOCK_M, 1], tl.int32) + cols
    )  # a weight per row: no exchange between warps
    at = (
        _offsets(
            group,
            local,
            batch,
            heads,
            mixed_stride_s,
            mixed_stride_b,
            mixed_stride_h,
            TABLE_PER_SAMPLE,
        )[:, None]
        + cols
    )
    row = tl.cast(group, tl.int64) * group_rows + local
    out = row[:, None] * D + cols
    q = tl.load(mixed_ptr + at, mask=keep, other=0.0).to(ACC)
    k = tl.load(mixed_ptr + at + D, mask=keep, other=0.0).to(ACC)
    v = tl.load(mixed_ptr + at + 2 * D, mask=keep, other=0.0)
    q_weight = tl.load(q_weight_ptr + tile_cols, mask=keep, other=0.0).to(ACC)
    k_weight = tl.load(k_weight_ptr + tile_cols, mask=keep, other=0.0).to(ACC)
    cos, sin = _table_row(
        table_ptr, group, batch, table_stride_s, table_stride_b, D, BLOCK_D, TABLE_PER_SAMPLE, ACC
    )
    q, q_rstd = _norm_rotate(q, q_weight, cos, sin, D, EPS, BLOCK_M, BLOCK_D)
    k, k_rstd = _norm_rotate(k, k_weight, cos, sin, D, EPS, BLOCK_M, BLOCK_D)
    tl.store(v_ptr + out, v, mask=keep)
    tl.store(q_ptr + out, q.to(q_ptr.dtype.element_ty), mask=keep)
    tl.store(k_ptr + out, k.to(k_ptr.dtype.element_ty), mask=keep)
    tl.store(rstd_ptr + row, q_rstd, mask=ok)
    tl.store(rstd_ptr + tl.cast(rows, tl.int64) + row, k_rstd, mask=ok)


@triton.jit
def qkv_backward_kernel(
    dq_ptr, dk_ptr, dv_ptr, mixed_ptr, q_weight_ptr, k_weight_ptr, table_ptr, rstd_ptr,
    dmixed_ptr, partial_ptr,
    dq_stride_s, dq_stride_b, dq_stride_h, dk_stride_s, dk_stride_b, dk_stride_h,
    dv_stride_s, dv_stride_b, dv_stride_h, mixed_stride_s, mixed_stride_b, mixed_stride_h,
    table_stride_s, table_stride_b,
    batch, heads, group_rows, tiles, total_tiles, rows, programs,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    TABLE_PER_SAMPLE: tl.constexpr, STAGES: tl.constexpr, FP64: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """d(mixed) [S,B,heads,(dq|dk|dv)] contiguous, dv copied; partial dweight [2, programs, D] (q
    first).
    """
    ACC: tl.constexpr = tl.float64 if FP64 else tl.float32
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK_D)[None, :]
    q_weight = tl.load(q_weight_ptr + cols, mask=cols < D, other=0.0).to(ACC)
    k_weight = tl.load(k_weight_ptr + cols, mask=cols < D, other=0.0).to(ACC)
    dq_weight = tl.zeros([BLOCK_M, BLOCK_D], ACC)
    dk_weight = tl.zeros([BLOCK_M, BLOCK_D], ACC)
    for tile in tl.range(pid, total_tiles, programs, num_stages=STAGES):
        group = tile // tiles
        local = (tile % tiles) * BLOCK_M + tl.arange(0, BLOCK_M)
        ok = local < group_rows
        keep = ok[:, None] & (cols < D)
        row = tl.cast(group, tl.int64) * group_rows + local
        at = _offsets(
            group, local, batch, heads, mixed_stride_s, mixed_stride_b, mixed_stride_h,
            TABLE_PER_SAMPLE,
        )[:, None] + cols  # fmt: skip
        at_q = (
            _offsets(
                group, local, batch, heads, dq_stride_s, dq_stride_b, dq_stride_h, TABLE_PER_SAMPLE
            )[:, None]
            + cols
        )
        at_k = (
            _offsets(
                group, local, batch, heads, dk_stride_s, dk_stride_b, dk_stride_h, TABLE_PER_SAMPLE
            )[:, None]
            + cols
        )
        at_v = (
            _offsets(
                group, local, batch, heads, dv_stride_s, dv_stride_b, dv_stride_h, TABLE_PER_SAMPLE
            )[:, None]
            + cols
        )
        q = tl.load(mixed_ptr + at, mask=keep, other=0.0).to(ACC)
        k = tl.load(mixed_ptr + at + D, mask=keep, other=0.0).to(ACC)
        dq = tl.load(dq_ptr + at_q, mask=keep, other=0.0).to(ACC)
        dk = tl.load(dk_ptr + at_k, mask=keep, other=0.0).to(ACC)
        dv = tl.load(dv_ptr + at_v, mask=keep, other=0.0)
        q_rstd = tl.load(rstd_ptr + row, mask=ok, other=0.0)
        k_rstd = tl.load(rstd_ptr + tl.cast(rows, tl.int64) + row, mask=ok, other=0.0)
        cos, sin = _table_row(
            table_ptr, group, batch, table_stride_s, table_stride_b,
            D, BLOCK_D, TABLE_PER_SAMPLE, ACC,
        )  # fmt: skip
        dq, q_part = norm_rotate_backward(dq, q, q_weight, cos, sin, q_rstd, D, BLOCK_M, BLOCK_D)
        dk, k_part = norm_rotate_backward(dk, k, k_weight, cos, sin, k_rstd, D, BLOCK_M, BLOCK_D)
        dq_weight += q_part
        dk_weight += k_part
        out = row[:, None] * (3 * D) + cols
        tl.store(dmixed_ptr + out, dq.to(dmixed_ptr.dtype.element_ty), mask=keep)
        tl.store(dmixed_ptr + out + D, dk.to(dmixed_ptr.dtype.element_ty), mask=keep)
        tl.store(dmixed_ptr + out + 2 * D, dv, mask=keep)
    if DEPENDENT:
        dependent.launch_next()
    at = tl.cast(pid, tl.int64) * D + cols
    second = tl.cast(programs, tl.int64) * D
    tl.store(partial_ptr + at, tl.sum(dq_weight, axis=0)[None, :], mask=cols < D)
    tl.store(partial_ptr + second + at, tl.sum(dk_weight, axis=0)[None, :], mask=cols < D)
