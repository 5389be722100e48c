# SPDX-License-Identifier: Apache-2.0
"""The element formats and scale rules of OCP MX: five elements, one scale, block 32."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mxflux.mx.errors import MXValueError

BLOCK = 32
#: E8M0 has no sign, zero or infinity: byte s stands for 2**(s - 127), 255 for NaN.
SCALE_BIAS = 127
SCALE_NAN = 255


@dataclass(frozen=True)
class ElementFormat:
    """One element format: a sign bit, `exponent_bits` and `mantissa_bits`.

    `emax` is the exponent of the largest binade, `largest` its largest finite value. A code is
    the element's bits in the low `bits` of a byte.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    emax: int
    largest: float

    @property
    def bits(self) -> int:
        """Width of one code."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def min_normal(self) -> float:
        """Smallest positive normal value."""
        return 2.0 ** (1 - self.bias)

    @property
    def min_subnormal(self) -> float:
        """Smallest positive value: the step of the lowest binade."""
        return 2.0 ** (1 - self.bias - self.mantissa_bits)

    @property
    def sign_mask(self) -> int:
        """The sign bit of a code."""
        return 1 << (self.bits - 1)

    @property
    def largest_code(self) -> int:
        """The code of `largest`."""
        field = self.emax + self.bias
        mantissa = round((self.largest / 2.0**self.emax - 1.0) * 2**self.mantissa_bits)
        return (field << self.mantissa_bits) + int(mantissa)

    @property
    def block_bytes(self) -> int:
        """Bytes of one block of 32 codes packed without gaps."""
        return BLOCK * self.bits // 8


E2M1 = ElementFormat("e2m1", 2, 1, bias=1, emax=2, largest=6.0)
E2M3 = ElementFormat("e2m3", 2, 3, bias=1, emax=2, largest=7.5)
E3M2 = ElementFormat("e3m2", 3, 2, bias=3, emax=4, largest=28.0)
E4M3 = ElementFormat("e4m3", 4, 3, bias=7, emax=8, largest=448.0)
E5M2 = ElementFormat("e5m2", 5, 2, bias=15, emax=15, largest=57344.0)

FORMATS = {f.name: f for f in (E2M1, E2M3, E3M2, E4M3, E5M2)}


class ScaleMode(enum.Enum):
    """How the E8M0 byte of a block follows from its largest magnitude `amax`.

    With b the fp32 bits of amax, mb the mantissa bits and emax, largest those of the element:

    FLOOR  (b >> 23) - emax                                  OCP MX; clips up to amax = 2 * largest
    CEIL   (b >> 23) + (mantissa(b) > 0) - emax              never clips
    EVEN   ((b + (1 << (23 - mb - 1))) >> 23) - emax         amax rounded to mb bits first
    RCEIL  exponent of fp32(amax * fp32(1 / largest)), up    smallest power that does not clip

    The result is clamped to [0, 254]; an infinite or NaN amax gives 255. For RCEIL the power is
    raised when the mantissa is not zero (at exponent field 0: when it exceeds 0x400000).
    """

    FLOOR = "floor"
    CEIL = "ceil"
    EVEN = "even"
    RCEIL = "rceil"


def element_format(name: str | ElementFormat) -> ElementFormat:
    """The format called `name`; MXValueError names the valid ones."""
    if isinstance(name, ElementFormat):
        return name
    if name not in FORMATS:
        raise MXValueError(f"unknown MX element format {name!r}; valid: {', '.join(FORMATS)}")
    return FORMATS[name]


def scale_mode(name: str | ScaleMode) -> ScaleMode:
    """The scale mode called `name`; MXValueError names the valid ones."""
    if isinstance(name, ScaleMode):
        return name
    try:
        return ScaleMode(name)
    except ValueError:
        valid = ", ".join(m.value for m in ScaleMode)
        raise MXValueError(f"unknown MX scale mode {name!r}; valid: {valid}") from None
