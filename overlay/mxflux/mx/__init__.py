# SPDX-License-Identifier: Apache-2.0
"""MX numerics: formats, reference, packing layouts, packers, GEMM backends, linears, census."""

from mxflux.mx.blob import MXBlob
from mxflux.mx.errors import (
    MissingOperandError,
    MXError,
    MXUnavailableError,
    MXValueError,
    PrecisionError,
)
from mxflux.mx.formats import BLOCK, FORMATS, ScaleMode, element_format, scale_mode
from mxflux.mx.gemm import gemm
from mxflux.mx.layouts import LAYOUTS, layout_named
from mxflux.mx.quantize import quantize_columns, quantize_dual, quantize_rows, rng_state
from mxflux.mx.spec import QuantSpec
from mxflux.mx.tally import Census, census

__all__ = [
    "BLOCK",
    "FORMATS",
    "LAYOUTS",
    "Census",
    "MXBlob",
    "MXError",
    "MXUnavailableError",
    "MXValueError",
    "MissingOperandError",
    "PrecisionError",
    "QuantSpec",
    "ScaleMode",
    "census",
    "element_format",
    "gemm",
    "layout_named",
    "quantize_columns",
    "quantize_dual",
    "quantize_rows",
    "rng_state",
    "scale_mode",
]
