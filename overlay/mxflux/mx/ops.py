# SPDX-License-Identifier: Apache-2.0
"""The operator mxflux::quantize, opaque to torch.compile, and the checks in front of it.

Eager callers reach the implementation directly and skip the dispatcher.
"""

from __future__ import annotations

import torch

from mxflux.mx import packers, tally
from mxflux.mx.blob import blob_shapes, padded_length
from mxflux.mx.errors import MXValueError
from mxflux.mx.layouts import layout_named
from mxflux.mx.spec import QuantSpec

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def check_input(x: torch.Tensor, rng: torch.Tensor | None, row: str, col: str, pad: bool) -> None:
    """Raise MXValueError for anything that has no defined result, before work is done."""
    if x.dim() != 2:
        raise MXValueError(f"quantize takes a matrix (R, K), got shape {tuple(x.shape)}")
    if x.dtype not in DTYPES:
        raise MXValueError(f"quantize takes bfloat16, float16 or float32, got {x.dtype}")
    if not row and not col:
        raise MXValueError("quantize was asked for neither a row nor a column blob")
    if rng is not None and (rng.dtype != torch.int64 or tuple(rng.shape) != (2,)):
        raise MXValueError(f"rng is int64 (2,), got {rng.dtype} {tuple(rng.shape)}")
    rows, cols = x.shape
    _check_blob(row, rows, cols, rng, pad)
    _check_blob(col, cols, rows, rng, pad)


def _check_blob(text: str, rows: int, k: int, rng: torch.Tensor | None, pad: bool) -> None:
    if not text:
        return
    spec = QuantSpec.parse(text)
    stored = padded_length(k, spec.layout) if pad else k
    layout_named(spec.layout).check_shape(rows, stored)
    if spec.stochastic and rng is None:
        raise MXValueError("stochastic rounding needs rng=rng_state(seed, offset)")


def _label(role: str, row: str, col: str) -> tuple[str, str]:
    """Role with its direction, and the format, for the census."""
    formats = dict.fromkeys(QuantSpec.parse(text).format for text in (row, col) if text)
    direction = "dual" if row and col else ("row" if row else "column")
    return f"{role}:{direction}", "/".join(formats)


def _quantize(
    x: torch.Tensor,
    rng: torch.Tensor | None,
    row: str,
    col: str,
    packer: str,
    pad: bool,
    site: torch.Tensor | None,
    role: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    check_input(x, rng, row, col, pad)
    chosen = packers.choose(packer, x)
    if site is not None:
        tally.record_quantize(site, *_label(role, row, col), chosen)
    return packers.PACKERS[chosen](x, rng, row, col)


_quantize_op = torch.library.custom_op("mxflux::quantize", _quantize, mutates_args=())


@_quantize_op.register_fake
def _quantize_fake(
    x: torch.Tensor,
    rng: torch.Tensor | None,
    row: str,
    col: str,
    packer: str,  # noqa: ARG001 - the shapes do not depend on the last four
    pad: bool,
    site: torch.Tensor | None,  # noqa: ARG001
    role: str,  # noqa: ARG001
) -> tuple[torch.Tensor, ...]:
    check_input(x, rng, row, col, pad)
    rows, cols = x.shape
    shapes = (*blob_shapes(rows, cols, row), *blob_shapes(cols, rows, col))
    return tuple(x.new_empty(shape, dtype=torch.uint8) for shape in shapes)


def quantize(
    x: torch.Tensor,
    rng: torch.Tensor | None,
    row: str,
    col: str,
    packer: str = "auto",
    pad: bool = False,
    site: torch.Tensor | None = None,
    role: str = "input",
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """x (R, K) -> row data, row scale, column data, column scale; "" as a spec gives shape (0,)."""
    call = _quantize_op if torch.compiler.is_compiling() else _quantize
    return call(x, rng, row, col, packer, pad, site, role)
