# SPDX-License-Identifier: Apache-2.0
"""MXBlob: one packed GEMM operand, its bytes and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxflux.mx import reference
from mxflux.mx.hadamard import rotate
from mxflux.mx.layouts import Layout, ceil_to, layout_named
from mxflux.mx.spec import QuantSpec

if TYPE_CHECKING:
    import torch


def padded_length(k: int, layout: str | Layout) -> int:
    """The contraction length that the layout stores for a logical length k."""
    found = layout_named(layout) if isinstance(layout, str) else layout
    return ceil_to(k, found.col_multiple)


def blob_shapes(rows: int, k: int, text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of the data and scale tensors of a blob (rows, k) under the spec `text`."""
    if not text:
        return (0,), (0,)
    spec = QuantSpec.parse(text)
    layout, stored = layout_named(spec.layout), padded_length(k, spec.layout)
    return layout.data_shape(rows, stored, spec.element), layout.scale_shape(rows, stored)


@dataclass(frozen=True)
class MXBlob:
    """A logical matrix (rows, k), contracted along k, as packed codes and scales.

    data, scale: uint8, shapes from the layout for (rows, padded_k). Elements k .. padded_k are
    zero.
    """

    data: torch.Tensor
    scale: torch.Tensor
    rows: int
    k: int
    spec: QuantSpec

    @property
    def padded_k(self) -> int:
        """Stored contraction length."""
        return padded_length(self.k, self.spec.layout)

    def unpack(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes (rows, padded_k) and scales (rows, padded_k / 32), uint8."""
        layout = layout_named(self.spec.layout)
        return layout.unpack(self.data, self.scale, self.rows, self.padded_k, self.spec.element)

    def values(self) -> torch.Tensor:
        """Dequantized values (rows, padded_k) fp32 as a GEMM sees them: still rotated."""
        codes, scales = self.unpack()
        return reference.dequantize(codes, scales, self.spec.element)

    def dequantize(self) -> torch.Tensor:
        """Values (rows, k) fp32 with the rotation undone."""
        return rotate(self.values(), self.spec.hadamard)[:, : self.k]
