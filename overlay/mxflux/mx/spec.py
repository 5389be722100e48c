# SPDX-License-Identifier: Apache-2.0
"""QuantSpec: everything that decides the bytes of a packed operand, with a canonical text form."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields

from mxflux.mx.errors import MXValueError
from mxflux.mx.formats import ElementFormat, ScaleMode, element_format, scale_mode
from mxflux.mx.hadamard import SIZES
from mxflux.mx.layouts import PLAIN, layout_named


@dataclass(frozen=True)
class QuantSpec:
    """How one GEMM operand is quantized and packed.

    format: e2m1, e2m3, e3m2, e4m3 or e5m2. scale_mode: floor, ceil, even or rceil. hadamard: points
    of the rotation along the contracted dimension, 0, 16 or 32; the two operands of a GEMM must
    agree. block_2d: one scale for each 32 x 32 square, so that the row and the column blob of a
    matrix hold the same values. stochastic: stochastic rounding, which needs an rng when packing.
    layout: a name from `mxflux.mx.layouts`.

    `str(spec)` is canonical and `QuantSpec.parse` reads it back; operators carry this text.
    """

    format: str = "e2m1"
    scale_mode: str = "floor"
    hadamard: int = 0
    block_2d: bool = False
    stochastic: bool = False
    layout: str = PLAIN

    def __post_init__(self) -> None:
        element_format(self.format)
        scale_mode(self.scale_mode)
        if self.hadamard not in SIZES:
            raise MXValueError(f"hadamard={self.hadamard!r}: valid values are {SIZES}")
        if self.block_2d and self.hadamard:
            raise MXValueError(
                "block_2d with hadamard: a 32 x 32 scale serves both directions of a matrix, "
                "a rotation along one of them does not"
            )
        layout_named(self.layout).check_format(element_format(self.format))
        # Operators take the text on every call: it is put together once.
        text = ";".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))
        object.__setattr__(self, "_text", text)

    @property
    def element(self) -> ElementFormat:
        """The element format."""
        return element_format(self.format)

    @property
    def mode(self) -> ScaleMode:
        """The scale mode."""
        return scale_mode(self.scale_mode)

    def __str__(self) -> str:
        text: str = self._text  # type: ignore[attr-defined]
        return text

    @classmethod
    def parse(cls, text: str) -> QuantSpec:
        """The spec whose `str` is `text`; MXValueError on anything else."""
        return _parse(text)


@functools.cache
def _parse(text: str) -> QuantSpec:
    try:
        given = dict(item.split("=", 1) for item in text.split(";"))
        spec = QuantSpec(
            format=given["format"],
            scale_mode=given["scale_mode"],
            hadamard=int(given["hadamard"]),
            block_2d=given["block_2d"] == "True",
            stochastic=given["stochastic"] == "True",
            layout=given["layout"],
        )
    except MXValueError:
        raise
    except (ValueError, KeyError):
        raise MXValueError(f"not a QuantSpec: {text!r}") from None
    if str(spec) != text:
        raise MXValueError(f"not a canonical QuantSpec: {text!r}, expected {spec}")
    return spec
