# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLR1714, RET505, RUF005, SIM108 - Triton's language has no `in`, no unpacking into tuples,
# compiles both arms of a conditional expression and what follows a return
"""Triton pieces of the packers, on tensors that hold one element of every strip. fp32 throughout.

A strip is a whole block of 32 or a quarter of one: a tuple of WIDTH tensors (rows, strips), WIDTH
32 or 8, so that what happens inside a strip happens inside a thread. Four neighbouring strips make
a block when WIDTH is 8. Every function computes what its namesake in `mxflux.mx.reference`,
`mxflux.mx.philox` or `mxflux.mx.hadamard` computes, bit for bit.
"""

from __future__ import annotations

import triton
import triton.language as tl

from mxflux.mx.formats import FORMATS


@triton.constexpr_function
def emax_of(name):
    """Exponent of the largest binade."""
    return FORMATS[name].emax


@triton.constexpr_function
def mantissa_bits_of(name):
    """Mantissa bits of an element."""
    return FORMATS[name].mantissa_bits


@triton.constexpr_function
def bias_of(name):
    """Exponent bias of an element."""
    return FORMATS[name].bias


@triton.constexpr_function
def bits_of(name):
    """Width of a code."""
    return FORMATS[name].bits


@triton.constexpr_function
def largest_of(name):
    """Largest finite value of an element."""
    return FORMATS[name].largest


@triton.constexpr_function
def largest_code_of(name):
    """Code of the largest finite value."""
    return FORMATS[name].largest_code


@triton.constexpr_function
def extra_of(name):
    """Power of two folded into the scale so that FP4 and FP6 ride in the FP8 converter."""
    return {"e2m1": 6, "e2m3": 6, "e3m2": 12}.get(name, 0)


@triton.constexpr_function
def power_of_two(exponent):
    """2.0 ** exponent, exact."""
    return 2.0**exponent


@triton.jit
def widened(x):
    """x as fp32. bf16 by its bits: the upper half of a register is a mask away, where a conversion
    would move it down first.
    """
    if x.dtype == tl.bfloat16:
        return (x.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    else:
        return x.to(tl.float32)


@triton.jit
def strip_maximum(xs, WIDTH: tl.constexpr):
    """fp32 bits (int32) of the largest magnitude of a strip. NaN wins over everything."""
    m = tl.abs(xs[0])
    for i in tl.static_range(1, WIDTH):
        m = tl.maximum(m, tl.abs(xs[i]), propagate_nan=tl.PropagateNan.ALL)
    return m.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def scale_byte(b, FMT: tl.constexpr, MODE: tl.constexpr):
    """E8M0 bytes (int32) from the bits of block maxima; 255 for an infinite or NaN block."""
    EMAX: tl.constexpr = emax_of(FMT)
    MB: tl.constexpr = mantissa_bits_of(FMT)
    exponent = b >> 23
    if MODE == "floor":
        s = exponent - EMAX
    elif MODE == "ceil":
        s = exponent + ((b & 0x7FFFFF) != 0).to(tl.int32) - EMAX
    elif MODE == "even":
        s = ((b + (1 << (22 - MB))) >> 23) - EMAX
    else:
        tl.static_assert(MODE == "rceil")
        RECIPROCAL: tl.constexpr = 1.0 / largest_of(FMT)
        d = (b.to(tl.float32, bitcast=True) * RECIPROCAL).to(tl.int32, bitcast=True)
        field = d >> 23
        rest = d & 0x7FFFFF
        s = field + tl.where(field == 0, rest > 0x400000, rest != 0).to(tl.int32)
    return tl.where(exponent == 255, 255, tl.maximum(s, 0))


@triton.jit
def inverse_scale(s, EXTRA: tl.constexpr):
    """2**(127 - s - EXTRA) as fp32, exact, subnormal where it must be; anything for s = 255.

    s of a finite block is at most 253 (emax is 2 or more), so the first factor is normal.
    """
    return ((254 - s) << 23).to(tl.float32, bitcast=True) * power_of_two(-EXTRA)


@triton.jit
def four_bytes(y0, y1, y2, y3, FMT: tl.constexpr):
    """Four FP8 codes, E4M3 or for FMT e3m2 and e5m2 E5M2, in one uint32, first in the low byte."""
    y = tl.join(tl.join(y0, y2), tl.join(y1, y3))
    if FMT == "e3m2" or FMT == "e5m2":
        f = y.to(tl.float8e5)
    else:
        f = y.to(tl.float8e4nv)
    c = f.to(tl.uint8, bitcast=True).to(tl.uint32)
    even, odd = tl.split(c)
    c0, c2 = tl.split(even)
    c1, c3 = tl.split(odd)
    # In pairs: the converter has left each pair in 16 bits.
    return (c0 | (c1 << 8)) | ((c2 | (c3 << 8)) << 16)


@triton.jit
def _on_grid(y):
    """y * 64 rounded to a multiple of half its binade (at least 1), nearest even, over 64.

    Adding 2**22 times that binade leaves just those multiples representable; taking it away again
    is exact. The sign is put back: it would be lost on what rounds to zero.
    """
    bits = tl.maximum(tl.abs(y), 0.015625).to(tl.uint32, bitcast=True) & 0x7F800000
    binade = bits.to(tl.float32, bitcast=True)
    total = tl.fma(binade, 4194304.0, tl.abs(y))
    r = tl.fma(binade, -4194304.0, total).to(tl.uint32, bitcast=True)
    return (r | (y.to(tl.uint32, bitcast=True) & 0x80000000)).to(tl.float32, bitcast=True)


@triton.jit
def eight_nibbles(ys, FIRST: tl.constexpr):
    """E2M1 codes FIRST .. FIRST + 8 of y * 64 in one uint32, nearest even, saturated.

    On E2M1's grid and below 8 in magnitude, as the scale ensures, y is E4M3 exactly: the code's
    three bits and, for what has rounded up to 8, a fourth sit above two zeros.
    """
    r = (_on_grid(ys[FIRST]),)
    for j in tl.static_range(1, 8):
        r = r + (_on_grid(ys[FIRST + j]),)
    even = four_bytes(r[0], r[2], r[4], r[6], "e2m1")
    odd = four_bytes(r[1], r[3], r[5], r[7], "e2m1")
    m = ((even >> 2) & 0x0F0F0F0F) | ((odd << 2) & 0xF0F0F0F0)
    m -= (m & 0x88888888) >> 3
    return m | ((even >> 4) & 0x08080808) | (odd & 0x80808080)


@triton.jit
def quad(y0, y1, y2, y3, FMT: tl.constexpr):
    """Four FP8 codes of y * 2**-EXTRA in one uint32, first in the low byte; nearest, saturated.

    E2M3(x) is E4M3(x * 2**-6) and E3M2(x) is E5M2(x * 2**-12) without the upper exponent bits.
    """
    LIMIT: tl.constexpr = largest_of(FMT) * power_of_two(-extra_of(FMT))
    y0, y1 = tl.clamp(y0, -LIMIT, LIMIT), tl.clamp(y1, -LIMIT, LIMIT)
    y2, y3 = tl.clamp(y2, -LIMIT, LIMIT), tl.clamp(y3, -LIMIT, LIMIT)
    return four_bytes(y0, y1, y2, y3, FMT)


@triton.jit
def six_bits(q):
    """Four FP8 bytes -> their four FP6 codes in 24 bits, first in the low bits.

    Moving a field down subtracts a multiple of it: multiply-adds, which have a pipe of their own.
    """
    six = (q & 0x1F1F1F1F) | ((q >> 2) & 0x20202020)
    pairs = six - tl.mul((six & 0x3F003F00) >> 2, 3, sanitize_overflow=False)
    return pairs - tl.mul(pairs >> 16, 61440, sanitize_overflow=False)


@triton.jit
def stochastic_code(y, word, FMT: tl.constexpr):
    """Code (uint32) of y = v * 2**(127 - s) rounded up where the random `word` (uint32) says."""
    MB: tl.constexpr = mantissa_bits_of(FMT)
    DROP: tl.constexpr = 23 - MB
    BIAS: tl.constexpr = bias_of(FMT)
    SIGN: tl.constexpr = bits_of(FMT) - 1
    MIN_NORMAL: tl.constexpr = power_of_two(1 - BIAS)
    TO_FIXED: tl.constexpr = power_of_two(DROP + BIAS + MB - 1)
    u = y.to(tl.uint32, bitcast=True)
    a = tl.minimum(tl.abs(y), largest_of(FMT))
    add = (word >> (32 - DROP)).to(tl.int32)
    fixed = (tl.minimum(a, MIN_NORMAL) * TO_FIXED).to(tl.int32)
    low = (fixed + add) >> DROP
    high = ((a.to(tl.int32, bitcast=True) + add) >> DROP) - ((127 - BIAS) << MB)
    c = tl.minimum(tl.where(a < MIN_NORMAL, low, high), largest_code_of(FMT))
    return c.to(tl.uint32) | ((u >> 31) << SIGN)


@triton.jit
def random_words(rng_ptr, index, STREAM: tl.constexpr):
    """Four Philox 4x32-10 words (uint32) for counters `index` (int64, or int32 and not negative).

    rng_ptr: [seed, offset].
    """
    seed = tl.load(rng_ptr).to(tl.uint64)
    offset = tl.load(rng_ptr + 1).to(tl.uint64)
    if index.dtype == tl.int32:
        index = index.to(tl.uint32)
    index = index.to(tl.uint64)
    c0 = (index & 0xFFFFFFFF).to(tl.uint32)
    c1 = (index >> 32).to(tl.uint32)
    c2 = tl.zeros_like(c0) + (offset & 0xFFFFFFFF).to(tl.uint32)
    c3 = tl.zeros_like(c0) + ((offset >> 32) & 0x7FFFFFFF).to(tl.uint32)
    if STREAM == 1:
        c3 = c3 | 0x80000000
    k0 = (seed & 0xFFFFFFFF).to(tl.uint32)
    k1 = (seed >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        # One instruction gives both halves of a product.
        p0 = c0.to(tl.uint64) * 0xD2511F53
        p1 = c2.to(tl.uint64) * 0xCD9E8D57
        c0 = (p1 >> 32).to(tl.uint32) ^ c1 ^ k0
        c1 = p1.to(tl.uint32)
        c2 = (p0 >> 32).to(tl.uint32) ^ c3 ^ k1
        c3 = p0.to(tl.uint32)
        k0 = tl.add(k0, 0x9E3779B9, sanitize_overflow=False)
        k1 = tl.add(k1, 0xBB67AE85, sanitize_overflow=False)
    return c0, c1, c2, c3


@triton.jit
def scaled(xs, factor, WIDTH: tl.constexpr):
    """Every element times `factor`."""
    ys = (xs[0] * factor,)
    for i in tl.static_range(1, WIDTH):
        ys = ys + (xs[i] * factor,)
    return ys


@triton.jit
def _butterfly(xs, DISTANCE: tl.constexpr, WIDTH: tl.constexpr):
    ys = (xs[0] + xs[DISTANCE],)
    for i in tl.static_range(1, WIDTH):
        if (i // DISTANCE) % 2 == 0:
            ys = ys + (xs[i] + xs[i + DISTANCE],)
        else:
            ys = ys + (xs[i - DISTANCE] - xs[i],)
    return ys


@triton.jit
def _across(x, STRIPS: tl.constexpr, A: tl.constexpr, S: tl.constexpr):
    """One element of a butterfly between strips STRIPS apart. x: (A, S)."""
    mine = tl.reshape(x, [A, S // 4, 4])
    place = tl.arange(0, 4)[None, None, :]
    other = tl.gather(mine, tl.broadcast_to(place ^ STRIPS, [A, S // 4, 4]), 2)
    sign = tl.where((place & STRIPS) == 0, 1.0, -1.0)
    y = tl.fma(mine, tl.broadcast_to(sign, [A, S // 4, 4]), other)
    return tl.reshape(y, [A, S])


@triton.jit
def _butterfly_across(xs, STRIPS: tl.constexpr, A: tl.constexpr, S: tl.constexpr):
    ys = (_across(xs[0], STRIPS, A, S),)
    for i in tl.static_range(1, 8):
        ys = ys + (_across(xs[i], STRIPS, A, S),)
    return ys


@triton.jit
def _scaled_butterfly(xs, FACTOR: tl.constexpr, WIDTH: tl.constexpr):
    """Neighbours times FACTOR, added and subtracted: one product of two is fused with the sum."""
    ys = ()
    for i in tl.static_range(0, WIDTH, 2):
        y = xs[i] * FACTOR
        ys = ys + (tl.fma(xs[i + 1], FACTOR, y), tl.fma(xs[i + 1], -FACTOR, y))
    return ys


@triton.jit
def rotate(
    xs,
    POINTS: tl.constexpr,
    EXACT: tl.constexpr,
    WIDTH: tl.constexpr,
    A: tl.constexpr,
    S: tl.constexpr,
):
    """Strips (A, S) rotated in groups of POINTS, same order of operations as the reference. EXACT:
    dividing an element by POINTS loses no bit, as with values of bf16.
    """
    if EXACT:
        ys = _scaled_butterfly(xs, 1.0 / POINTS, WIDTH)
    else:
        ys = _butterfly(scaled(xs, 1.0 / POINTS, WIDTH), 1, WIDTH)
    ys = _butterfly(ys, 2, WIDTH)
    ys = _butterfly(ys, 4, WIDTH)
    if WIDTH == 8:
        ys = _butterfly_across(ys, 1, A, S)
        if POINTS == 32:
            ys = _butterfly_across(ys, 2, A, S)
    else:
        ys = _butterfly(ys, 8, WIDTH)
        if POINTS == 32:
            ys = _butterfly(ys, 16, WIDTH)
    return scaled(ys, POINTS**0.5, WIDTH)
