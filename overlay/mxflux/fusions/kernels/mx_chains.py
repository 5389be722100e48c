# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: RUF005, PLR0915  (Triton has no unpacking into tuples; a kernel is one function)
"""MX packers with a producer in front: the tile that is packed is computed where it is staged.

A program computes its tile once, rounds the norms' (not the activation's) to the dtype in which the
unfused chain would have stored it, and emits the row blob, the column blob or both from registers:
the tensor itself never reaches memory. Codes, scales, layouts and random words are those of
`mxflux.mx.kernels.packers`.

    ln_pack        ((x - mean)*rstd)*(1 + scale) + shift       the LN-modulate of given statistics
    gelu_pack      gelu_tanh(x)
    gelu_grad_pack g*gelu_tanh'(x), and the sums of its columns
    qkv_grad_pack  the backward of QK-norm + RoPE of packed QKV, and the sums of dgamma and columns
"""

import triton
import triton.language as tl

from mxflux.fusions.kernels.norm_rope import norm_rotate_backward
from mxflux.mx.kernels.elements import widened
from mxflux.mx.kernels.packers import eighths, emit_columns, emit_rows
from mxflux.mx.spec import QuantSpec


class _Specs(dict[str, QuantSpec]):
    """text -> spec; a mapping, since Triton hashes what a kernel calls and takes no method."""

    def __missing__(self, text: str) -> QuantSpec:
        return QuantSpec.parse(text)


SPECS = _Specs()
# 2**(x*(LINEAR + CUBIC*x^2)) = exp(-2*u(x)), u(x) = sqrt(2/pi)*(x + 0.044715*x^3)
LINEAR = tl.constexpr(-2.302208198144325)
CUBIC = tl.constexpr(-0.1029432395800235)
# 2*u'(x) = SLOPE + BEND*x^2
SLOPE = tl.constexpr(1.5957691216057308)
BEND = tl.constexpr(0.21406444881780076)
SATURATED = tl.constexpr(1e4)


@triton.constexpr_function
def format_of(text):
    """Element format of a spec text."""
    return SPECS[text].format


@triton.constexpr_function
def mode_of(text):
    """Scale mode of a spec text."""
    return SPECS[text].scale_mode


@triton.constexpr_function
def hadamard_of(text):
    """Points of the rotation of a spec text."""
    return SPECS[text].hadamard


@triton.constexpr_function
def stochastic_of(text):
    """Whether a spec text rounds stochastically."""
    return SPECS[text].stochastic


@triton.constexpr_function
def block_2d_of(text):
    """Whether a spec text has one scale a square."""
    return SPECS[text].block_2d


@triton.constexpr_function
def layout_of(text):
    """Packing layout of a spec text."""
    return SPECS[text].layout


@triton.jit
def _halves(xs, COUNT: tl.constexpr):
    """Split every tensor of a tuple of COUNT along its last axis of 2: the first halves, then the
    second ones.
    """
    first = ()
    second = ()
    for i in tl.static_range(COUNT):
        a, b = tl.split(xs[i])
        first = first + (a,)
        second = second + (b,)
    return first + second


@triton.jit
def block_rows(tile, C: tl.constexpr, D: tl.constexpr):
    """(32*C, D) -> 32 tensors (C, D) fp32, row i of every block of 32 rows in the i-th."""
    turned = tl.permute(tl.reshape(tile, [C, 32, D]), (0, 2, 1))
    # the last axis is the lowest bit of the row: after five splits tensor i holds the row with
    # the bits of i, lowest bit split first
    xs = (tl.reshape(turned, [C, D, 2, 2, 2, 2, 2]),)
    xs = _halves(xs, 1)
    xs = _halves(xs, 2)
    xs = _halves(xs, 4)
    xs = _halves(xs, 8)
    xs = _halves(xs, 16)
    wide = ()
    for i in tl.static_range(32):
        wide = wide + (widened(xs[i]),)
    return wide


@triton.jit
def emit(
    tile, row_data_ptr, row_scale_ptr, col_data_ptr, col_scale_ptr, rng_ptr, m, n, M, N,
    ROW: tl.constexpr, COL: tl.constexpr, EVEN: tl.constexpr, LONG: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Pack the tile (BLOCK_M, BLOCK_N) at (m, n) of a matrix (M, N): spec texts, "" for no blob."""
    EXACT: tl.constexpr = tile.dtype == tl.bfloat16
    if ROW != "":
        xs = eighths(widened(tile), BLOCK_M, BLOCK_N // 8)
        emit_rows(
            xs, row_data_ptr, row_scale_ptr, rng_ptr, m, n, M, N,
            format_of(ROW), mode_of(ROW), hadamard_of(ROW), stochastic_of(ROW),
            block_2d_of(ROW), layout_of(ROW), EVEN, EXACT, LONG, BLOCK_M, BLOCK_N,
        )  # fmt: skip
    if COL != "":
        cs = block_rows(tile, BLOCK_M // 32, BLOCK_N)
        emit_columns(
            cs, col_data_ptr, col_scale_ptr, rng_ptr, m, n, M, N,
            format_of(COL), mode_of(COL), hadamard_of(COL), stochastic_of(COL),
            block_2d_of(COL), layout_of(COL), EVEN, EXACT, LONG, BLOCK_M // 32, BLOCK_N,
        )  # fmt: skip


@triton.jit
def _load(at, mask, EVEN: tl.constexpr):
    """fp32 values at pointers `at`, 0 where the mask is off; EVEN: the mask is on everywhere."""
    x = tl.load(at) if EVEN else tl.load(at, mask=mask, other=0.0)
    return widened(x)


@triton.jit
def ln_pack_kernel(
    x_ptr, scale_ptr, shift_ptr, mean_ptr, rstd_ptr,
    row_data_ptr, row_scale_ptr, col_data_ptr, col_scale_ptr,
    M, x_stride_s, x_stride_b, scale_stride_b, shift_stride_b,
    N: tl.constexpr, batch: tl.constexpr,
    ROW: tl.constexpr, COL: tl.constexpr, EVEN: tl.constexpr, LONG: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, tiles_n: tl.constexpr,
):  # fmt: skip
    """x [S,B,N] (M = S*B rows), scale, shift [B,N], mean, rstd [M] -> blobs of the LN-modulate."""
    pid = tl.program_id(0)
    m = pid // tiles_n * BLOCK_M
    n = pid % tiles_n * BLOCK_N
    r = m + tl.arange(0, BLOCK_M)
    c = (n + tl.arange(0, BLOCK_N))[None, :]
    rows = r < M
    keep = rows[:, None] & (c < N)
    s = tl.cast(r // batch, tl.int64)
    b = tl.cast(r % batch, tl.int64)
    x = _load(x_ptr + (s * x_stride_s + b * x_stride_b)[:, None] + c, keep, EVEN)
    scale = _load(scale_ptr + (b * scale_stride_b)[:, None] + c, keep, EVEN)
    shift = _load(shift_ptr + (b * shift_stride_b)[:, None] + c, keep, EVEN)
    mean = _load(mean_ptr + r, rows, EVEN)[:, None]
    rstd = _load(rstd_ptr + r, rows, EVEN)[:, None]
    y = tl.fma((x - mean) * rstd, 1.0 + scale, shift)
    if not EVEN:
        y = tl.where(keep, y, 0.0)
    tile = y.to(x_ptr.dtype.element_ty)
    emit(
        tile, row_data_ptr, row_scale_ptr, col_data_ptr, col_scale_ptr, mean_ptr, m, n, M, N,
        ROW, COL, EVEN, LONG, BLOCK_M, BLOCK_N,
    )  # fmt: skip


@triton.jit
def _exp2(z, PTX: tl.constexpr):
    """2**z; PTX: in the one instruction that flushes a subnormal power to zero."""
    if PTX:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [z], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.exp2(z)


@triton.jit
def _quotient(x, d, PTX: tl.constexpr):
    """x/d for d from 1 to 2**126 + 1; PTX: by the one instruction that needs no range."""
    if PTX:
        return x * tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [d], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.fdiv(x, d)


@triton.jit
def _exp_of_minus_twice(x, PTX: tl.constexpr):
    """(exp(-2*u(x)) up to 2**125, x within +-SATURATED): no power of x overflows."""
    near = tl.clamp(x, -SATURATED, SATURATED, propagate_nan=tl.PropagateNan.ALL)
    z = near * tl.fma(near * near, CUBIC, LINEAR)
    return _exp2(tl.minimum(z, 125.0, propagate_nan=tl.PropagateNan.ALL), PTX), near


@triton.jit
def gelu_tanh(raw, PTX: tl.constexpr):
    """x*0.5*(1 + tanh(u)) = x/(1 + exp(-2*u)), fp32, of raw values x."""
    # Widened in two ways: in front of a single one Triton 3.6 puts the exchange between the threads
    # of rows and of columns, and then computes everything behind it twice.
    x = raw.to(tl.float32)
    e, near = _exp_of_minus_twice(widened(raw), PTX)
    return _quotient(tl.maximum(x, near, propagate_nan=tl.PropagateNan.ALL), 1.0 + e, PTX)


@triton.jit
def gelu_tanh_derivative(x, PTX: tl.constexpr):
    """s + x*s*(1 - s)*2*u'(x) with s = 1/(1 + exp(-2*u)); x fp32."""
    e, near = _exp_of_minus_twice(x, PTX)
    s = _quotient(1.0, 1.0 + e, PTX)
    slope = near * tl.fma(near * near, BEND, SLOPE)
    return tl.fma(s, (1.0 - s) * slope, s)


@triton.jit
def gelu_pack_kernel(
    x_ptr,
    row_data_ptr, row_scale_ptr, col_data_ptr, col_scale_ptr,
    M, stride_m, N: tl.constexpr, PTX: tl.constexpr,
    ROW: tl.constexpr, COL: tl.constexpr, EVEN: tl.constexpr, LONG: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, tiles_n: tl.constexpr,
):  # fmt: skip
    """x (M, N) -> blobs of gelu_tanh(x), straight from fp32."""
    pid = tl.program_id(0)
    m = pid // tiles_n * BLOCK_M
    n = pid % tiles_n * BLOCK_N
    r = tl.cast(m + tl.arange(0, BLOCK_M), tl.int64)[:, None]
    c = (n + tl.arange(0, BLOCK_N))[None, :]
    at = x_ptr + r * stride_m + c
    raw = tl.load(at) if EVEN else tl.load(at, mask=(r < M) & (c < N), other=0.0)
    tile = gelu_tanh(raw, PTX)
    emit(
        tile, row_data_ptr, row_scale_ptr, col_data_ptr, col_scale_ptr, x_ptr, m, n, M, N,
        ROW, COL, EVEN, LONG, BLOCK_M, BLOCK_N,
    )  # fmt: skip


@triton.jit
def gelu_grad_pack_kernel(
    g_ptr, x_ptr, rng_ptr,
    row_data_ptr, row_scale_ptr, col_data_ptr, col_scale_ptr, partial_ptr,
    M, g_stride_m, x_stride_m, N: tl.constexpr, PTX: tl.constexpr,
    ROW: tl.constexpr, COL: tl.constexpr, SUMS: tl.constexpr, EVEN: tl.constexpr,
    LONG: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, tiles_n: tl.constexpr,
):  # fmt: skip
    """g, x (M, N) -> blobs of d = g*gelu_tanh'(x), straight from fp32; partial [tiles_m, N] fp32:
    sums of d over the rows of a tile (SUMS).
    """
    pid = tl.program_id(0)
    m = pid // tiles_n * BLOCK_M
    n = pid % tiles_n * BLOCK_N
    r = tl.cast(m + tl.arange(0, BLOCK_M), tl.int64)[:, None]
    c = (n + tl.arange(0, BLOCK_N))[None, :]
    keep = (r < M) & (c < N)
    g = _load(g_ptr + r * g_stride_m + c, keep, EVEN)
    x = _load(x_ptr + r * x_stride_m + c, keep, EVEN)
    tile = g * gelu_tanh_derivative(x, PTX)
    if SUMS:
        at = n + tl.arange(0, BLOCK_N)
        part = tl.cast(pid // tiles_n, tl.int64) * N + at
        tl.store(partial_ptr + part, tl.sum(tile, axis=0), mask=at < N)
    emit(
        tile, row_data_ptr, row_scale_ptr, col_data_ptr, col_scale_ptr, rng_ptr, m, n, M, N,
        ROW, COL, EVEN, LONG, BLOCK_M, BLOCK_N,
    )  # fmt: skip


@triton.jit
def qkv_grad_pack_kernel(
    dq_ptr, dk_ptr, dv_ptr, mixed_ptr, q_weight_ptr, k_weight_ptr, table_ptr, rstd_ptr, rng_ptr,
    row_data_ptr, row_scale_ptr, col_data_ptr, col_scale_ptr, gamma_ptr, partial_ptr,
    M,
    dq_stride_s, dq_stride_b, dq_stride_h, dk_stride_s, dk_stride_b, dk_stride_h,
    dv_stride_s, dv_stride_b, dv_stride_h, mixed_stride_s, mixed_stride_b, mixed_stride_h,
    table_stride_s, table_stride_b, rows, parts,
    N: tl.constexpr, batch: tl.constexpr, heads: tl.constexpr,
    ROW: tl.constexpr, COL: tl.constexpr, SUMS: tl.constexpr, EVEN: tl.constexpr,
    LONG: tl.constexpr,
    TABLE_PER_SAMPLE: tl.constexpr, ONE_POSITION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """dq, dk, dv [S,B,heads,D], mixed [S,B,heads,3*D], rstd [2, S*B*heads] -> blobs of d(mixed)
    (M = S*B, N = heads*3*D), rounded to mixed's dtype. BLOCK_N is D.

    A program packs BLOCK_M tokens of one part (q, k or v) of one head. gamma [2, parts, D] fp32: dq
    and dk of the norm weights, one row a row of tiles and head. partial [tiles_m, N] fp32 (SUMS):
    sums of d(mixed) over the rows of a tile. ONE_POSITION: all rows of a tile share one row of the
    table.
    """
    pid = tl.program_id(0)
    tile_m = pid // (3 * heads)
    inside = pid % (3 * heads)
    h = inside // 3
    part = inside % 3
    m = tile_m * BLOCK_M
    n = inside * BLOCK_N
    r = m + tl.arange(0, BLOCK_M)
    in_rows = r < M
    keep = in_rows[:, None]
    s = tl.cast(r // batch, tl.int64)
    b = tl.cast(r % batch, tl.int64)
    h64 = tl.cast(h, tl.int64)
    cols = tl.arange(0, BLOCK_N)[None, :]
    if part == 2:
        at = (s * dv_stride_s + b * dv_stride_b)[:, None] + cols
        copied = dv_ptr + h64 * dv_stride_h + at
        tile = tl.load(copied) if EVEN else tl.load(copied, mask=keep, other=0.0)
    else:
        at = (s * mixed_stride_s + b * mixed_stride_b)[:, None] + cols
        x = _load(mixed_ptr + (h64 * mixed_stride_h + part * BLOCK_N) + at, keep, EVEN)
        if part == 0:
            at = (s * dq_stride_s + b * dq_stride_b)[:, None] + cols
            g = _load(dq_ptr + h64 * dq_stride_h + at, keep, EVEN)
            w = tl.load(q_weight_ptr + cols).to(tl.float32)
        else:
            at = (s * dk_stride_s + b * dk_stride_b)[:, None] + cols
            g = _load(dk_ptr + h64 * dk_stride_h + at, keep, EVEN)
            w = tl.load(k_weight_ptr + cols).to(tl.float32)
        at_rstd = tl.cast(part, tl.int64) * rows + tl.cast(r, tl.int64) * heads + h
        rstd = _load(rstd_ptr + at_rstd, in_rows, EVEN)
        half = tl.arange(0, BLOCK_N // 2)[None, :]
        if ONE_POSITION:
            at_table = tl.cast(m // batch, tl.int64) * table_stride_s + half
            cos = tl.load(table_ptr + at_table)
            sin = tl.load(table_ptr + at_table + BLOCK_N // 2)
        else:
            row_of = s * table_stride_s
            if TABLE_PER_SAMPLE:
                row_of += b * table_stride_b
            at_rows = row_of[:, None] + half
            cos = tl.load(table_ptr + at_rows, mask=keep, other=0.0)
            sin = tl.load(table_ptr + at_rows + BLOCK_N // 2, mask=keep, other=0.0)
        dx, dw = norm_rotate_backward(g, x, w, cos, sin, rstd, BLOCK_N, BLOCK_M, BLOCK_N)
        tile = dx.to(mixed_ptr.dtype.element_ty)
        row = (tl.cast(part, tl.int64) * parts + tile_m * heads + h) * BLOCK_N
        tl.store(gamma_ptr + row + tl.arange(0, BLOCK_N), tl.sum(dw, axis=0))
    if SUMS:
        at_sum = tl.cast(tile_m, tl.int64) * N + n + tl.arange(0, BLOCK_N)
        tl.store(partial_ptr + at_sum, tl.sum(widened(tile), axis=0))
    emit(
        tile, row_data_ptr, row_scale_ptr, col_data_ptr, col_scale_ptr, rng_ptr, m, n, M, N,
        ROW, COL, EVEN, LONG, BLOCK_M, BLOCK_N,
    )  # fmt: skip
