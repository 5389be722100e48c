# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLR1714, RUF005, PLR0915 - Triton's language has no `in`, no unpacking into tuples, and
# a kernel is one function
"""Triton packers: one program packs a tile of x along its rows, its columns, or both.

One thread owns whole blocks. Along rows it loads 4 x 8 neighbours; along columns, one value of each
of 32 rows, neighbouring threads taking neighbouring columns. So nothing is shuffled or staged: the
column pass reads the tile a second time, from the L1 that the row pass has filled.

    E2M1   32 codes -> 4 words             one 16-byte store a block
    E2M3   32 codes -> 6 words             three 8-byte stores (A6W6: one of 16, one of 8)
    E4M3   32 codes -> 8 words             two 16-byte stores
"""

from __future__ import annotations

import triton
import triton.language as tl

from mxflux.mx.kernels.elements import (
    bits_of,
    block_maximum,
    eight_nibbles,
    extra_of,
    inverse_scale,
    quad,
    random_words,
    rotate,
    scale_byte,
    scaled_block,
    six_bits,
    stochastic_code,
)


@triton.jit
def _stored_k(K, LAYOUT: tl.constexpr):
    """Contraction length a layout stores for a logical K."""
    MULTIPLE: tl.constexpr = (
        32 if LAYOUT == "plain.v1" else (128 if LAYOUT == "aiter_a6w6.v1" else 64)
    )
    return tl.cdiv(K, MULTIPLE) * MULTIPLE


@triton.jit
def _scale_at(r, g, K, LAYOUT: tl.constexpr):
    """Byte index of the scale of block g of row r; K is the stored length."""
    if LAYOUT == "aiter_a6w6.v1":
        inside = r % 256 // 128 * 512 + g % 4 * 128 + r % 16 * 8 + r % 128 // 16
        return ((r // 256) * (K // 128 + 2) + g // 4) * 1024 + inside
    if LAYOUT == "plain.v1":
        return r * (K // 32) + g
    outer = ((r // 32) * tl.cdiv(K, 256) + g // 8) * 4 + g % 4
    return ((outer * 16 + r % 16) * 2 + g % 8 // 4) * 2 + r % 32 // 16


@triton.jit
def _four_codes(ys, rng_ptr, index, FIRST: tl.constexpr, FMT: tl.constexpr, STREAM: tl.constexpr):
    """Codes FIRST .. FIRST + 4 of a block, stochastic; index: Philox counter of the block."""
    r0, r1, r2, r3 = random_words(rng_ptr, index + FIRST // 4, STREAM)
    SHIFT: tl.constexpr = bits_of(FMT)
    low = stochastic_code(ys[FIRST], r0, FMT) | (stochastic_code(ys[FIRST + 1], r1, FMT) << SHIFT)
    high = stochastic_code(ys[FIRST + 2], r2, FMT) | (
        stochastic_code(ys[FIRST + 3], r3, FMT) << SHIFT
    )
    return low | (high << 2 * SHIFT)


@triton.jit
def _nibble_words(ys, rng_ptr, index, STOCHASTIC: tl.constexpr, STREAM: tl.constexpr):
    """A block of E2M1 codes as four words (uint32)."""
    ws = ()
    for i in tl.static_range(4):
        if STOCHASTIC:
            low = _four_codes(ys, rng_ptr, index, 8 * i, "e2m1", STREAM)
            w = low | (_four_codes(ys, rng_ptr, index, 8 * i + 4, "e2m1", STREAM) << 16)
        else:
            w = eight_nibbles(ys, 8 * i)
        ws = ws + (w,)
    return ws


@triton.jit
def _quads(ys, rng_ptr, index, FMT: tl.constexpr, STOCHASTIC: tl.constexpr, STREAM: tl.constexpr):
    """A block of FP6 or FP8 codes as eight words (uint32) of four codes: 24 or 32 bits each."""
    qs = ()
    for i in tl.static_range(8):
        if STOCHASTIC:
            q = _four_codes(ys, rng_ptr, index, 4 * i, FMT, STREAM)
        else:
            q = quad(ys[4 * i], ys[4 * i + 1], ys[4 * i + 2], ys[4 * i + 3], FMT)
            if FMT == "e2m3" or FMT == "e3m2":
                q = six_bits(q)
        qs = qs + (q,)
    return qs


@triton.jit
def _store2(ptr, at, w0, w1, keep, mask):
    pair = tl.where(keep[:, :, None], tl.join(w0, w1), 0)
    tl.store(ptr + (at[:, :, None] + tl.arange(0, 2)[None, None, :]), pair, mask=mask[:, :, None])


@triton.jit
def _store4(ptr, at, w0, w1, w2, w3, keep, mask, A: tl.constexpr, B: tl.constexpr):
    four = tl.reshape(tl.join(tl.join(w0, w2), tl.join(w1, w3)), [A, B, 4])
    four = tl.where(keep[:, :, None], four, 0)
    tl.store(ptr + (at[:, :, None] + tl.arange(0, 4)[None, None, :]), four, mask=mask[:, :, None])


@triton.jit
def _pack_block(
    xs,
    data_ptr,
    scale_ptr,
    rng_ptr,
    r,
    g,
    rows,
    K_logical,
    FMT: tl.constexpr,
    MODE: tl.constexpr,
    HADAMARD: tl.constexpr,
    STOCHASTIC: tl.constexpr,
    LAYOUT: tl.constexpr,
    STREAM: tl.constexpr,
    SQUARE: tl.constexpr,
    A: tl.constexpr,
    B: tl.constexpr,
):
    """Pack block g of row r (both (A, B), int64) of a blob (rows, K_logical) from its 32 elements.

    SQUARE: axis of r along which 32 neighbours share their scale, or -1. Elements outside the blob
    must be 0. Writes 32-bit words and scale bytes.
    """
    K = _stored_k(K_logical, LAYOUT)
    if HADAMARD:
        xs = rotate(xs, HADAMARD)
    b = block_maximum(xs)
    if SQUARE == 0:
        top = tl.max(tl.reshape(b, [A // 32, 32, B]), axis=1)
        b = tl.reshape(tl.broadcast_to(top[:, None, :], [A // 32, 32, B]), [A, B])
    elif SQUARE == 1:
        top = tl.max(tl.reshape(b, [A, B // 32, 32]), axis=2)
        b = tl.reshape(tl.broadcast_to(top[:, :, None], [A, B // 32, 32]), [A, B])
    s = scale_byte(b, FMT, MODE)
    ys = scaled_block(xs, inverse_scale(s, 0 if STOCHASTIC else extra_of(FMT)))
    # A bad block's codes are zeroed below, as words: its scaled elements may be anything.
    keep = s != 255
    groups = K // 32
    data_rows = tl.cdiv(rows, 256) * 256 if LAYOUT == "aiter_a6w6.v1" else rows
    mask = (r < data_rows) & (g < groups)
    block = r * groups + g
    if FMT == "e2m1":
        w = _nibble_words(ys, rng_ptr, block * 8, STOCHASTIC, STREAM)
        at = block * 4
        if LAYOUT == "aiter_a4w4_b.v1":
            at = ((((r // 16) * (groups // 2) + g // 2) * 2 + g % 2) * 16 + r % 16) * 4
        _store4(data_ptr, at, w[0], w[1], w[2], w[3], keep, mask, A, B)
    elif FMT == "e2m3" or FMT == "e3m2":
        q = _quads(ys, rng_ptr, block * 8, FMT, STOCHASTIC, STREAM)
        w0 = q[0] | (q[1] << 24)
        w1 = (q[1] >> 8) | (q[2] << 16)
        w2 = (q[2] >> 16) | (q[3] << 8)
        w3 = q[4] | (q[5] << 24)
        w4 = (q[5] >> 8) | (q[6] << 16)
        w5 = (q[6] >> 16) | (q[7] << 8)
        if LAYOUT == "aiter_a6w6.v1":
            tile = ((r // 256) * (groups // 4 + 2) + g // 4) * 6144
            number = r % 256 // 16 * 64 + g % 4 * 16 + r % 16
            _store4(data_ptr, tile + number * 4, w0, w1, w2, w3, keep, mask, A, B)
            _store2(data_ptr, tile + 4096 + number * 2, w4, w5, keep, mask)
        else:
            at = block * 6
            _store2(data_ptr, at, w0, w1, keep, mask)
            _store2(data_ptr, at + 2, w2, w3, keep, mask)
            _store2(data_ptr, at + 4, w4, w5, keep, mask)
    else:
        q = _quads(ys, rng_ptr, block * 8, FMT, STOCHASTIC, STREAM)
        at = block * 8
        _store4(data_ptr, at, q[0], q[1], q[2], q[3], keep, mask, A, B)
        _store4(data_ptr, at + 4, q[4], q[5], q[6], q[7], keep, mask, A, B)
    scale_rows = rows if LAYOUT == "plain.v1" else tl.cdiv(rows, 256) * 256
    scale_groups = (
        tl.cdiv(K, 256) * 8
        if LAYOUT == "aiter_a4w4_a.v1" or LAYOUT == "aiter_a4w4_b.v1"
        else groups
    )
    mask = (r < scale_rows) & (g < scale_groups)
    tl.store(scale_ptr + _scale_at(r, g, K, LAYOUT), s.to(tl.uint8), mask=mask)


@triton.jit
def _eight(x, A: tl.constexpr, B: tl.constexpr):
    """(A, B, 8) -> its 8 columns (A, B), in order."""
    even, odd = tl.split(tl.reshape(x, [A, B, 2, 2, 2]))
    x0_4, x2_6 = tl.split(even)
    x1_5, x3_7 = tl.split(odd)
    x0, x4 = tl.split(x0_4)
    x1, x5 = tl.split(x1_5)
    x2, x6 = tl.split(x2_6)
    x3, x7 = tl.split(x3_7)
    return x0, x1, x2, x3, x4, x5, x6, x7


@triton.jit
def _load(at, mask, EVEN: tl.constexpr):
    """fp32 values at pointers `at`, 0 where the mask is off; EVEN: the mask is on everywhere."""
    x = tl.load(at) if EVEN else tl.load(at, mask=mask, other=0.0)
    return x.to(tl.float32)


@triton.jit
def _offset(index, stride, WIDE: tl.constexpr):
    """index * stride, in 64 bits if WIDE: the host knows when a tile spans 2**31 elements."""
    return index.to(tl.int64) * stride if WIDE else index * stride


@triton.jit
def _row_blocks(
    tile_ptr,
    m,
    n,
    M,
    N,
    stride_m,
    stride_n,
    EVEN: tl.constexpr,
    WIDE: tl.constexpr,
    A: tl.constexpr,
    B: tl.constexpr,
):
    """Blocks of rows m .. m + A, columns n .. n + 32 * B, as 32 tensors (A, B) fp32."""
    r = tl.arange(0, A)[:, None, None]
    xs = ()
    for i in tl.static_range(4):
        c = (tl.arange(0, B) * 32)[None, :, None] + (8 * i + tl.arange(0, 8))[None, None, :]
        at = tile_ptr + _offset(r, stride_m, WIDE) + _offset(c, stride_n, WIDE)
        xs = xs + _eight(_load(at, (r < M - m) & (c < N - n), EVEN), A, B)
    return xs


@triton.jit
def _column_blocks(
    tile_ptr,
    m,
    n,
    M,
    N,
    stride_m,
    stride_n,
    EVEN: tl.constexpr,
    WIDE: tl.constexpr,
    A: tl.constexpr,
    B: tl.constexpr,
):
    """Blocks of columns n .. n + B, rows m .. m + 32 * A, as 32 tensors (A, B) fp32."""
    c = tl.arange(0, B)[None, :]
    r = (tl.arange(0, A) * 32)[:, None]
    lane = _offset(r, stride_m, WIDE) + _offset(c, stride_n, WIDE)
    xs = ()
    for i in tl.static_range(32):
        at = tile_ptr + tl.cast(i, tl.int64) * stride_m + lane
        xs = xs + (_load(at, (r + i < M - m) & (c < N - n), EVEN),)
    return xs


@triton.jit
def mx_pack_kernel(
    x_ptr,
    row_data_ptr,
    row_scale_ptr,
    col_data_ptr,
    col_scale_ptr,
    rng_ptr,
    M,
    N,
    stride_m,
    stride_n,
    tiles_n,
    ROW: tl.constexpr,
    ROW_FMT: tl.constexpr,
    ROW_MODE: tl.constexpr,
    ROW_HADAMARD: tl.constexpr,
    ROW_STOCHASTIC: tl.constexpr,
    ROW_BLOCK_2D: tl.constexpr,
    ROW_LAYOUT: tl.constexpr,
    COL: tl.constexpr,
    COL_FMT: tl.constexpr,
    COL_MODE: tl.constexpr,
    COL_HADAMARD: tl.constexpr,
    COL_STOCHASTIC: tl.constexpr,
    COL_BLOCK_2D: tl.constexpr,
    COL_LAYOUT: tl.constexpr,
    EVEN: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """x (M, N) any strides -> its row blob (M, N) if ROW and its column blob (N, M) if COL.

    One program a tile, tiles_n tiles a row of tiles (one grid axis: the others end at 65535). The
    grid covers the padding of the layouts too. Pointers of a blob that is off are not read. EVEN: M
    and N are multiples of the tile and nothing is padded. WIDE: a tile spans 2**31 elements of x.
    """
    pid = tl.program_id(0)
    m = pid // tiles_n * BLOCK_M
    n = pid % tiles_n * BLOCK_N
    tile_ptr = x_ptr + m.to(tl.int64) * stride_m + n.to(tl.int64) * stride_n
    if ROW:
        A: tl.constexpr = BLOCK_M
        B: tl.constexpr = BLOCK_N // 32
        xs = _row_blocks(tile_ptr, m, n, M, N, stride_m, stride_n, EVEN, WIDE, A, B)
        r = (m + tl.arange(0, A)).to(tl.int64)[:, None] + tl.zeros([1, B], tl.int64)
        g = (n // 32 + tl.arange(0, B)).to(tl.int64)[None, :] + tl.zeros([A, 1], tl.int64)
        _pack_block(
            xs,
            row_data_ptr,
            row_scale_ptr,
            rng_ptr,
            r,
            g,
            M,
            N,
            ROW_FMT,
            ROW_MODE,
            ROW_HADAMARD,
            ROW_STOCHASTIC,
            ROW_LAYOUT,
            0,
            0 if ROW_BLOCK_2D else -1,
            A,
            B,
        )
    if COL:
        C: tl.constexpr = BLOCK_M // 32
        D: tl.constexpr = BLOCK_N
        xs = _column_blocks(tile_ptr, m, n, M, N, stride_m, stride_n, EVEN, WIDE, C, D)
        r = (n + tl.arange(0, D)).to(tl.int64)[None, :] + tl.zeros([C, 1], tl.int64)
        g = (m // 32 + tl.arange(0, C)).to(tl.int64)[:, None] + tl.zeros([1, D], tl.int64)
        _pack_block(
            xs,
            col_data_ptr,
            col_scale_ptr,
            rng_ptr,
            r,
            g,
            N,
            M,
            COL_FMT,
            COL_MODE,
            COL_HADAMARD,
            COL_STOCHASTIC,
            COL_LAYOUT,
            1,
            1 if COL_BLOCK_2D else -1,
            C,
            D,
        )
