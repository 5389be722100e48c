# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: RUF005, PLR0915  (Triton has no tuple unpacking; a kernel is one function)
"""LayerNorm + AdaLN modulation, with or without a gated residual in front; one pass each way.

    h = x + gate*y (GATED, rounded to its dtype and stored; else h = x);  xh = (h - mean)*rstd
    out = xh*(1 + scale) + shift
    g1 = g*(1 + scale);  d = rstd*(g1 - mean(g1) - xh*mean(g1*xh)) [+ dh when GATED];  dx = d
    dscale = sum_s g*xh;  dshift = sum_s g;  GATED: dy = gate*d, dgate = sum_s d*y

A program owns one sample b and the rows split, split + splits, ... of its sequence, BLOCK_R rows at
a time, so that (1 + scale), shift and gate are loaded once and the sums over s stay in registers. A
row is CHUNKS chunks of CHUNK columns (3072 = 3*1024: no padded lanes); chunks are added elementwise
first, one reduction a row.
"""

import triton
import triton.language as tl

from mxflux.fusions.kernels import dependent


@triton.jit
def ln_modulate_forward_kernel(
    x_ptr, y_ptr, gate_ptr, scale_ptr, shift_ptr, h_ptr, out_ptr, mean_ptr, rstd_ptr,
    x_stride_s, x_stride_b, y_stride_s, y_stride_b, gate_stride_b, scale_stride_b, shift_stride_b,
    seq, batch, splits, iterations,
    H: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr, BLOCK_R: tl.constexpr,
    GATED: tl.constexpr, STORE: tl.constexpr, STAGES: tl.constexpr, EPS: tl.constexpr,
    FP64: tl.constexpr,
):  # fmt: skip
    """x, y [S,B,H], gate, scale, shift [B,H] -> h (GATED), out (STORE) [S,B,H]; mean, rstd [S*B].

    Without STORE whoever packs the output computes it from the statistics, see `mx_chains`.
    """
    ACC: tl.constexpr = tl.float64 if FP64 else tl.float32
    pid = tl.program_id(0)
    b = tl.cast(pid % batch, tl.int64)
    split = pid // batch
    c = tl.arange(0, CHUNK)[None, :]
    scales = ()
    shifts = ()
    gates = ()
    for k in tl.static_range(CHUNKS):
        at = k * CHUNK + c
        if STORE:
            sc = tl.load(scale_ptr + b * scale_stride_b + at, mask=at < H, other=0.0).to(ACC)
            sh = tl.load(shift_ptr + b * shift_stride_b + at, mask=at < H, other=0.0).to(ACC)
            scales = scales + (1.0 + sc,)
            shifts = shifts + (sh,)
        if GATED:
            ga = tl.load(gate_ptr + b * gate_stride_b + at, mask=at < H, other=0.0).to(ACC)
            gates = gates + (ga,)
    for i in tl.range(0, iterations, num_stages=STAGES):
        s = (i * splits + split) * BLOCK_R + tl.arange(0, BLOCK_R)
        ok = s < seq
        s64 = tl.cast(s, tl.int64)
        row = s64 * batch + b
        x_row = (s64 * x_stride_s + b * x_stride_b)[:, None]
        y_row = (s64 * y_stride_s + b * y_stride_b)[:, None]
        xs = ()
        for k in tl.static_range(CHUNKS):
            at = k * CHUNK + c
            keep = ok[:, None] & (at < H)
            x = tl.load(x_ptr + x_row + at, mask=keep, other=0.0).to(ACC)
            if GATED:
                x += gates[k] * tl.load(y_ptr + y_row + at, mask=keep, other=0.0).to(ACC)
                h = x.to(h_ptr.dtype.element_ty)
                tl.store(h_ptr + row[:, None] * H + at, h, mask=keep)
                x = h.to(ACC)
            xs = xs + (x,)
        total = xs[0]
        for k in tl.static_range(1, CHUNKS):
            total += xs[k]
        mean = tl.sum(total, axis=1) / H
        ds = ()
        square = tl.zeros([BLOCK_R, CHUNK], ACC)
        for k in tl.static_range(CHUNKS):
            d = tl.where(k * CHUNK + c < H, xs[k] - mean[:, None], 0.0)
            square += d * d
            ds = ds + (d,)
        rstd = tl.rsqrt(tl.sum(square, axis=1) / H + EPS)
        if STORE:
            for k in tl.static_range(CHUNKS):
                at = k * CHUNK + c
                keep = ok[:, None] & (at < H)
                # fused in so many words: the packer's bits do not hang on what a compiler contracts
                o = tl.fma(ds[k] * rstd[:, None], scales[k], shifts[k])
                tl.store(out_ptr + row[:, None] * H + at, o.to(out_ptr.dtype.element_ty), mask=keep)
        tl.store(mean_ptr + row, mean, mask=ok)
        tl.store(rstd_ptr + row, rstd, mask=ok)


@triton.jit
def ln_modulate_backward_kernel(
    g_ptr, dh_ptr, h_ptr, y_ptr, gate_ptr, scale_ptr, mean_ptr, rstd_ptr,
    dx_ptr, dy_ptr, partial_ptr,
    g_stride_s, g_stride_b, dh_stride_s, dh_stride_b, h_stride_s, h_stride_b,
    y_stride_s, y_stride_b, gate_stride_b, scale_stride_b,
    seq, batch, splits, iterations,
    H: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr, BLOCK_R: tl.constexpr,
    GATED: tl.constexpr, STAGES: tl.constexpr, FP64: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """dx (and dy) [S,B,H] contiguous; partial [2 or 3, splits, B, H]: dscale, dshift, dgate of each
    program.
    """
    ACC: tl.constexpr = tl.float64 if FP64 else tl.float32
    pid = tl.program_id(0)
    b = tl.cast(pid % batch, tl.int64)
    split = pid // batch
    c = tl.arange(0, CHUNK)[None, :]
    scales = ()
    gates = ()
    dscales = ()
    dshifts = ()
    dgates = ()
    for k in tl.static_range(CHUNKS):
        at = k * CHUNK + c
        sc = tl.load(scale_ptr + b * scale_stride_b + at, mask=at < H, other=0.0).to(ACC)
        scales = scales + (1.0 + sc,)
        dscales = dscales + (tl.zeros([BLOCK_R, CHUNK], ACC),)
        dshifts = dshifts + (tl.zeros([BLOCK_R, CHUNK], ACC),)
        if GATED:
            ga = tl.load(gate_ptr + b * gate_stride_b + at, mask=at < H, other=0.0).to(ACC)
            gates = gates + (ga,)
            dgates = dgates + (tl.zeros([BLOCK_R, CHUNK], ACC),)
    for i in tl.range(0, iterations, num_stages=STAGES):
        s = (i * splits + split) * BLOCK_R + tl.arange(0, BLOCK_R)
        ok = s < seq
        s64 = tl.cast(s, tl.int64)
        row = s64 * batch + b
        g_row = (s64 * g_stride_s + b * g_stride_b)[:, None]
        h_row = (s64 * h_stride_s + b * h_stride_b)[:, None]
        mean = tl.load(mean_ptr + row, mask=ok, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + row, mask=ok, other=0.0)[:, None]
        if GATED:  # issued before the reduction, whose barrier no load crosses
            dh_row = (s64 * dh_stride_s + b * dh_stride_b)[:, None]
            y_row = (s64 * y_stride_s + b * y_stride_b)[:, None]
        gs = ()
        hs = ()
        dhs = ()
        ys = ()
        dot = tl.zeros([BLOCK_R, CHUNK], ACC)
        add = tl.zeros([BLOCK_R, CHUNK], ACC)
        for k in tl.static_range(CHUNKS):
            at = k * CHUNK + c
            keep = ok[:, None] & (at < H)
            g = tl.load(g_ptr + g_row + at, mask=keep, other=0.0).to(ACC)
            h = tl.load(h_ptr + h_row + at, mask=keep, other=0.0).to(ACC)
            xh = tl.where(at < H, (h - mean) * rstd, 0.0)
            g1 = g * scales[k]
            dot += g1 * xh
            add += g1
            gs = gs + (g,)
            hs = hs + (xh,)
            if GATED:
                dhs = dhs + (tl.load(dh_ptr + dh_row + at, mask=keep, other=0.0),)
                ys = ys + (tl.load(y_ptr + y_row + at, mask=keep, other=0.0),)
        # both row sums in one reduction: one barrier a row instead of two
        c1, c2 = tl.split(tl.sum(tl.join(dot, add), axis=1))
        c1 = (c1 / H)[:, None]
        c2 = (c2 / H)[:, None]
        next_dscales = ()
        next_dshifts = ()
        next_dgates = ()
        for k in tl.static_range(CHUNKS):
            at = k * CHUNK + c
            keep = ok[:, None] & (at < H)
            out = row[:, None] * H + at
            d = rstd * (gs[k] * scales[k] - c2 - hs[k] * c1)
            if GATED:
                d += dhs[k].to(ACC)
                dy = d * gates[k]
                tl.store(dy_ptr + out, dy.to(dy_ptr.dtype.element_ty), mask=keep)
                next_dgates = next_dgates + (dgates[k] + d * ys[k].to(ACC),)
            tl.store(dx_ptr + out, d.to(dx_ptr.dtype.element_ty), mask=keep)
            next_dscales = next_dscales + (dscales[k] + gs[k] * hs[k],)
            next_dshifts = next_dshifts + (dshifts[k] + gs[k],)
        dscales = next_dscales
        dshifts = next_dshifts
        if GATED:
            dgates = next_dgates
    if DEPENDENT:
        dependent.launch_next()
    part = (tl.cast(split, tl.int64) * batch + b) * H
    plane = tl.cast(splits, tl.int64) * batch * H
    for k in tl.static_range(CHUNKS):
        at = k * CHUNK + c
        keep = at < H
        tl.store(partial_ptr + part + at, tl.sum(dscales[k], axis=0)[None, :], mask=keep)
        tl.store(partial_ptr + plane + part + at, tl.sum(dshifts[k], axis=0)[None, :], mask=keep)
        if GATED:
            dgate = tl.sum(dgates[k], axis=0)[None, :]
            tl.store(partial_ptr + 2 * plane + part + at, dgate, mask=keep)
