# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLR1714, RUF005, RET505 - Triton's language has no `in`, no unpacking into tuples, and
# compiles what follows a return
"""Triton packers: one program packs a tile of x along its rows, its columns, or both.

Along rows four neighbouring threads share a block, 8 elements each: a warp reads and writes one
contiguous run, and the maximum takes two shuffles. Along columns a thread owns whole blocks, one
value of each of 32 rows, neighbouring threads taking neighbouring columns; the codes then cross
shared memory once, so that the blocks of a column, neighbours in the blob, are written together.
The column pass of a tile packed both ways reads it from the L1 that the row pass has filled.

Codes are written in units, four slots a block, one a thread along rows:

    E2M1   32 codes -> 4 words of 32 bits
    E2M3   32 codes -> 3 words of 64 bits and an empty slot
    E4M3   32 codes -> 4 words of 64 bits
"""

from __future__ import annotations

import triton
import triton.language as tl

from mxflux.mx.kernels.elements import (
    bits_of,
    eight_nibbles,
    extra_of,
    inverse_scale,
    quad,
    random_words,
    rotate,
    scale_byte,
    scaled,
    six_bits,
    stochastic_code,
    strip_maximum,
    widened,
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
def _unit_at(r, g, t, K, FMT: tl.constexpr, LAYOUT: tl.constexpr):
    """Index of unit t of block g of row r; K is the stored length."""
    if LAYOUT == "aiter_a6w6.v1":
        tile = ((r // 256) * (K // 128 + 2) + g // 4) * 3072
        number = r % 256 // 16 * 64 + g % 4 * 16 + r % 16
        return tile + tl.where(t < 2, number * 2 + t, 2048 + number)
    if LAYOUT == "aiter_a4w4_b.v1":
        return ((((r // 16) * (K // 64) + g // 2) * 2 + g % 2) * 16 + r % 16) * 4 + t
    return (r * (K // 32) + g) * (3 if bits_of(FMT) == 6 else 4) + t


@triton.jit
def _four_codes(ys, rng_ptr, index, FIRST: tl.constexpr, FMT: tl.constexpr, STREAM: tl.constexpr):
    """Codes FIRST .. FIRST + 4 of a strip, stochastic; index: Philox counter of the strip."""
    r0, r1, r2, r3 = random_words(rng_ptr, index + FIRST // 4, STREAM)
    SHIFT: tl.constexpr = bits_of(FMT)
    low = stochastic_code(ys[FIRST], r0, FMT) | (stochastic_code(ys[FIRST + 1], r1, FMT) << SHIFT)
    high = stochastic_code(ys[FIRST + 2], r2, FMT) | (
        stochastic_code(ys[FIRST + 3], r3, FMT) << SHIFT
    )
    return low | (high << 2 * SHIFT)


@triton.jit
def _words(
    ys,
    rng_ptr,
    index,
    keep,
    FMT: tl.constexpr,
    STOCHASTIC: tl.constexpr,
    STREAM: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Codes of a strip in words (uint32): 8 codes of 4 bits, or 4 of 6 or 8 bits, each; 0 where
    not `keep`.
    """
    CODES: tl.constexpr = 8 if FMT == "e2m1" else 4
    ws = ()
    for i in tl.static_range(WIDTH // CODES):
        if STOCHASTIC:
            w = _four_codes(ys, rng_ptr, index, CODES * i, FMT, STREAM)
            if FMT == "e2m1":
                w = w | (_four_codes(ys, rng_ptr, index, CODES * i + 4, FMT, STREAM) << 16)
        elif FMT == "e2m1":
            w = eight_nibbles(ys, 8 * i)
        else:
            w = quad(ys[4 * i], ys[4 * i + 1], ys[4 * i + 2], ys[4 * i + 3], FMT)
            if bits_of(FMT) == 6:
                w = six_bits(w)
        # A bad block's scaled elements may be anything.
        ws = ws + (tl.where(keep, w, 0),)
    return ws


@triton.jit
def _four(w0, w1, w2, w3, A: tl.constexpr, B: tl.constexpr):
    """Four tensors (A, B), next to each other: (A, B, 4)."""
    return tl.reshape(tl.join(tl.join(w0, w2), tl.join(w1, w3)), [A, B, 4])


@triton.jit
def _double(low, high):
    """Two words as one of 64 bits."""
    return low.to(tl.uint64) | (high.to(tl.uint64) << 32)


@triton.jit
def _sixteen(q0, q1, q2, q3):
    """16 FP6 codes, 24 bits a word, as three words (uint32)."""
    w0 = q0 | (q1 << 24)
    w1 = (q1 >> 8) | (q2 << 16)
    w2 = (q2 >> 16) | (q3 << 8)
    return w0, w1, w2


@triton.jit
def _block_units(ws, FMT: tl.constexpr, A: tl.constexpr, B: tl.constexpr):
    """The words of whole blocks (A, B) as their units (A, B, 4)."""
    if FMT == "e2m1":
        return _four(ws[0], ws[1], ws[2], ws[3], A, B)
    elif bits_of(FMT) == 6:
        w0, w1, w2 = _sixteen(ws[0], ws[1], ws[2], ws[3])
        w3, w4, w5 = _sixteen(ws[4], ws[5], ws[6], ws[7])
        u2 = _double(w4, w5)
        return _four(_double(w0, w1), _double(w2, w3), u2, u2, A, B)
    else:
        u0, u1 = _double(ws[0], ws[1]), _double(ws[2], ws[3])
        return _four(u0, u1, _double(ws[4], ws[5]), _double(ws[6], ws[7]), A, B)


@triton.jit
def _strip_units(ws, FMT: tl.constexpr, A: tl.constexpr, S: tl.constexpr):
    """The words of quarter blocks (A, S) as their units (A, S)."""
    if FMT == "e2m1":
        return ws[0]
    elif bits_of(FMT) == 6:
        # Strips of 48 bits, h0 h1 h2; strip t of a block writes bits 64 t .. 64 t + 64: its own
        # from h_t on, then those of the next.
        low = tl.reshape(ws[0] | (ws[1] << 24), [A, S // 4, 4])
        high = tl.reshape(ws[1] >> 8, [A, S // 4, 4])
        t = tl.arange(0, 4)[None, None, :]
        after = tl.broadcast_to(tl.minimum(t + 1, 3), [A, S // 4, 4])
        next_low, next_high = tl.gather(low, after, 2), tl.gather(high, after, 2)
        h2_n0, n1_n2 = high | (next_low << 16), (next_low >> 16) | (next_high << 16)
        by = tl.broadcast_to((t * 16).to(tl.uint64), [A, S // 4, 4])
        first = (_double(low, h2_n0) >> by).to(tl.uint32)
        second = (_double(h2_n0, n1_n2) >> by).to(tl.uint32)
        return tl.reshape(_double(first, second), [A, S])
    else:
        return _double(ws[0], ws[1])


@triton.jit
def _store_units(
    data_ptr,
    units,
    r,
    u,
    rows,
    K,
    FMT: tl.constexpr,
    LAYOUT: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Write units (rows r (R, 1), unit slots u (1, U) along K) of a blob."""
    SIX: tl.constexpr = bits_of(FMT) == 6
    if SIX or LAYOUT == "aiter_a4w4_b.v1":
        at = _unit_at(r, u // 4, u % 4, K, FMT, LAYOUT)
    else:
        at = r * (K // 8) + u
    data_rows = tl.cdiv(rows, 256) * 256 if LAYOUT == "aiter_a6w6.v1" else rows
    mask = (r < data_rows) & (u < K // 8)
    if SIX and EVEN:
        mask = u % 4 < 3
    elif SIX:
        mask = (u % 4 < 3) & mask
    if EVEN and not SIX:
        tl.store(data_ptr + at, units)
    else:
        tl.store(data_ptr + at, units, mask=mask)


@triton.jit
def _store_scales(scale_ptr, s, r, g, rows, K, LAYOUT: tl.constexpr, EVEN: tl.constexpr):
    """Write the scale bytes s of blocks g (1, G) of rows r (R, 1)."""
    scale_rows = rows if LAYOUT == "plain.v1" else tl.cdiv(rows, 256) * 256
    scale_groups = (
        tl.cdiv(K, 256) * 8
        if LAYOUT == "aiter_a4w4_a.v1" or LAYOUT == "aiter_a4w4_b.v1"
        else K // 32
    )
    at = scale_ptr + _scale_at(r, g, K, LAYOUT)
    if EVEN:
        tl.store(at, s.to(tl.uint8))
    else:
        tl.store(at, s.to(tl.uint8), mask=(r < scale_rows) & (g < scale_groups))


@triton.jit
def eighths(x, A: tl.constexpr, B: tl.constexpr):
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
    return widened(x)


@triton.jit
def _index(start, COUNT: tl.constexpr, LONG: tl.constexpr):
    """start, start + 1, ...: COUNT of them, in 64 bits if LONG."""
    i = start + tl.arange(0, COUNT)
    return i.to(tl.int64) if LONG else i


@triton.jit
def _offset(index, stride, WIDE: tl.constexpr):
    """index * stride, in 64 bits if WIDE: the host knows when a tile spans 2**31 elements."""
    return index.to(tl.int64) * stride if WIDE else index * stride


@triton.jit
def emit_rows(
    xs,
    data_ptr,
    scale_ptr,
    rng_ptr,
    m,
    n,
    M,
    N,
    FMT: tl.constexpr,
    MODE: tl.constexpr,
    HADAMARD: tl.constexpr,
    STOCHASTIC: tl.constexpr,
    BLOCK_2D: tl.constexpr,
    LAYOUT: tl.constexpr,
    EVEN: tl.constexpr,
    EXACT: tl.constexpr,
    LONG: tl.constexpr,
    A: tl.constexpr,
    N_TILE: tl.constexpr,
):
    """Quantize rows m .. m + A, columns n .. n + N_TILE, given in eighths (`eighths`), into the row
    blob (M, N).
    """
    S: tl.constexpr = N_TILE // 8
    B: tl.constexpr = N_TILE // 32
    if HADAMARD:
        xs = rotate(xs, HADAMARD, EXACT, 8, A, S)
    b = tl.max(tl.reshape(strip_maximum(xs, 8), [A, B, 4]), axis=2)
    if BLOCK_2D:
        top = tl.max(tl.reshape(b, [A // 32, 32, B]), axis=1)
        b = tl.reshape(tl.broadcast_to(top[:, None, :], [A // 32, 32, B]), [A, B])
    s = scale_byte(b, FMT, MODE)
    each = tl.reshape(tl.broadcast_to(s[:, :, None], [A, B, 4]), [A, S])
    EXTRA: tl.constexpr = 0 if STOCHASTIC else extra_of(FMT)
    ys = scaled(xs, inverse_scale(each, EXTRA), 8)
    K = _stored_k(N, LAYOUT)
    r = _index(m, A, LONG)[:, None]
    strip = _index(n // 8, S, LONG)[None, :]
    index = (r * (K // 8) + strip) * 2
    ws = _words(ys, rng_ptr, index, each != 255, FMT, STOCHASTIC, 0, 8)
    units = _strip_units(ws, FMT, A, S)
    _store_units(data_ptr, units, r, strip, M, K, FMT, LAYOUT, EVEN)
    g = _index(n // 32, B, LONG)[None, :]
    _store_scales(scale_ptr, s, r, g, M, K, LAYOUT, EVEN)


@triton.jit
def _pack_rows(
    tile_ptr,
    data_ptr,
    scale_ptr,
    rng_ptr,
    m,
    n,
    M,
    N,
    stride_m,
    stride_n,
    FMT: tl.constexpr,
    MODE: tl.constexpr,
    HADAMARD: tl.constexpr,
    STOCHASTIC: tl.constexpr,
    BLOCK_2D: tl.constexpr,
    LAYOUT: tl.constexpr,
    EVEN: tl.constexpr,
    WIDE: tl.constexpr,
    LONG: tl.constexpr,
    A: tl.constexpr,
    N_TILE: tl.constexpr,
):
    """Pack rows m .. m + A, columns n .. n + N_TILE into the row blob (M, N)."""
    EXACT: tl.constexpr = tile_ptr.dtype.element_ty == tl.bfloat16
    r = tl.arange(0, A)[:, None]
    c = tl.arange(0, N_TILE)[None, :]
    at = tile_ptr + _offset(r, stride_m, WIDE) + _offset(c, stride_n, WIDE)
    xs = eighths(_load(at, (r < M - m) & (c < N - n), EVEN), A, N_TILE // 8)
    emit_rows(
        xs, data_ptr, scale_ptr, rng_ptr, m, n, M, N,
        FMT, MODE, HADAMARD, STOCHASTIC, BLOCK_2D, LAYOUT, EVEN, EXACT, LONG, A, N_TILE,
    )  # fmt: skip


@triton.jit
def emit_columns(
    xs,
    data_ptr,
    scale_ptr,
    rng_ptr,
    m,
    n,
    M,
    N,
    FMT: tl.constexpr,
    MODE: tl.constexpr,
    HADAMARD: tl.constexpr,
    STOCHASTIC: tl.constexpr,
    BLOCK_2D: tl.constexpr,
    LAYOUT: tl.constexpr,
    EVEN: tl.constexpr,
    EXACT: tl.constexpr,
    LONG: tl.constexpr,
    C: tl.constexpr,
    D: tl.constexpr,
):
    """Quantize rows m .. m + 32 * C, columns n .. n + D, given as 32 tensors (C, D), row i of every
    block in the i-th, into the column blob (N, M).
    """
    if HADAMARD:
        xs = rotate(xs, HADAMARD, EXACT, 32, C, D)
    b = strip_maximum(xs, 32)
    if BLOCK_2D:
        top = tl.max(tl.reshape(b, [C, D // 32, 32]), axis=2)
        b = tl.reshape(tl.broadcast_to(top[:, :, None], [C, D // 32, 32]), [C, D])
    s = scale_byte(b, FMT, MODE)
    EXTRA: tl.constexpr = 0 if STOCHASTIC else extra_of(FMT)
    ys = scaled(xs, inverse_scale(s, EXTRA), 32)
    K = _stored_k(M, LAYOUT)
    r = _index(n, D, LONG)
    g = _index(m // 32, C, LONG)
    index = (r[None, :] * (K // 32) + g[:, None]) * 8
    ws = _words(ys, rng_ptr, index, s != 255, FMT, STOCHASTIC, 1, 32)
    units = _block_units(ws, FMT, C, D)
    units = tl.reshape(tl.permute(units, (1, 0, 2)), [D, C * 4])
    u = _index(m // 8, C * 4, LONG)[None, :]
    _store_units(data_ptr, units, r[:, None], u, N, K, FMT, LAYOUT, EVEN)
    _store_scales(scale_ptr, tl.trans(s), r[:, None], g[None, :], N, K, LAYOUT, EVEN)


@triton.jit
def _pack_columns(
    tile_ptr,
    data_ptr,
    scale_ptr,
    rng_ptr,
    m,
    n,
    M,
    N,
    stride_m,
    stride_n,
    FMT: tl.constexpr,
    MODE: tl.constexpr,
    HADAMARD: tl.constexpr,
    STOCHASTIC: tl.constexpr,
    BLOCK_2D: tl.constexpr,
    LAYOUT: tl.constexpr,
    EVEN: tl.constexpr,
    WIDE: tl.constexpr,
    LONG: tl.constexpr,
    C: tl.constexpr,
    D: tl.constexpr,
):
    """Pack rows m .. m + 32 * C, columns n .. n + D into the column blob (N, M)."""
    EXACT: tl.constexpr = tile_ptr.dtype.element_ty == tl.bfloat16
    c = tl.arange(0, D)[None, :]
    r = (tl.arange(0, C) * 32)[:, None]
    across = _offset(c, stride_n, WIDE)
    xs = ()
    for i in tl.static_range(32):
        at = tile_ptr + (_offset(r + i, stride_m, WIDE) + across)
        xs = xs + (_load(at, (r + i < M - m) & (c < N - n), EVEN),)
    emit_columns(
        xs, data_ptr, scale_ptr, rng_ptr, m, n, M, N,
        FMT, MODE, HADAMARD, STOCHASTIC, BLOCK_2D, LAYOUT, EVEN, EXACT, LONG, C, D,
    )  # fmt: skip


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
    LONG: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """x (M, N) any strides -> its row blob (M, N) if ROW and its column blob (N, M) if COL.

    One program a tile, tiles_n tiles a row of tiles (one grid axis: the others end at 65535). The
    grid covers the padding of the layouts too. Pointers of a blob that is off are not read. EVEN: M
    and N are multiples of the tile and nothing is padded. WIDE: a tile spans 2**31 elements of x.
    LONG: the grid does.
    """
    pid = tl.program_id(0)
    m = pid // tiles_n * BLOCK_M
    n = pid % tiles_n * BLOCK_N
    tile_ptr = x_ptr + m.to(tl.int64) * stride_m + n.to(tl.int64) * stride_n
    if ROW:
        _pack_rows(
            tile_ptr,
            row_data_ptr,
            row_scale_ptr,
            rng_ptr,
            m,
            n,
            M,
            N,
            stride_m,
            stride_n,
            ROW_FMT,
            ROW_MODE,
            ROW_HADAMARD,
            ROW_STOCHASTIC,
            ROW_BLOCK_2D,
            ROW_LAYOUT,
            EVEN,
            WIDE,
            LONG,
            BLOCK_M,
            BLOCK_N,
        )
    if COL:
        _pack_columns(
            tile_ptr,
            col_data_ptr,
            col_scale_ptr,
            rng_ptr,
            m,
            n,
            M,
            N,
            stride_m,
            stride_n,
            COL_FMT,
            COL_MODE,
            COL_HADAMARD,
            COL_STOCHASTIC,
            COL_BLOCK_2D,
            COL_LAYOUT,
            EVEN,
            WIDE,
            LONG,
            BLOCK_M // 32,
            BLOCK_N,
        )
