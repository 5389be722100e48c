# SPDX-License-Identifier: Apache-2.0
"""Quantize and pack a matrix along its rows, its columns, or both with one read of it."""

from __future__ import annotations

import torch

from mxflux.mx import ops
from mxflux.mx.blob import MXBlob
from mxflux.mx.errors import MXValueError
from mxflux.mx.spec import QuantSpec

#: Spec text that asks an operator for no blob in that direction.
ABSENT = ""


def rng_state(seed: int, offset: int = 0, device: torch.device | str = "cpu") -> torch.Tensor:
    """int64 (2,) [seed, offset] for stochastic rounding; equal states give equal bytes.

    Advance the offset by one (`rng[1] += 1`) between tensors that must round independently.
    """
    for name, value in (("seed", seed), ("offset", offset)):
        if not 0 <= value < 1 << 63:
            raise MXValueError(f"{name}={value}: must lie in [0, 2**63)")
    return torch.tensor([seed, offset], dtype=torch.int64, device=device)


def quantize_rows(
    x: torch.Tensor,
    spec: QuantSpec,
    *,
    rng: torch.Tensor | None = None,
    packer: str = "auto",
    pad: bool = False,
    site: torch.Tensor | None = None,
    role: str = "input",
) -> MXBlob:
    """x (R, K) -> the blob (R, K) for GEMMs that contract the last dimension of x.

    x: bf16, fp16 or fp32, any strides. K must be a multiple of the layout's `col_multiple` (32 for
    plain) unless `pad`, which adds zeros. rng: see `rng_state`, needed if spec.stochastic.
    packer: auto, reference or triton; equal bytes. site, role: who is counted in a census.
    Raises MXValueError, MXUnavailableError.
    """
    data, scale, _, _ = ops.quantize(x, rng, str(spec), ABSENT, packer, pad, site, role)
    return MXBlob(data, scale, x.shape[0], x.shape[1], spec)


def quantize_columns(
    x: torch.Tensor,
    spec: QuantSpec,
    *,
    rng: torch.Tensor | None = None,
    packer: str = "auto",
    pad: bool = False,
    site: torch.Tensor | None = None,
    role: str = "input",
) -> MXBlob:
    """x (R, K) -> the blob (K, R) of its transpose, for GEMMs that contract the rows of x."""
    _, _, data, scale = ops.quantize(x, rng, ABSENT, str(spec), packer, pad, site, role)
    return MXBlob(data, scale, x.shape[1], x.shape[0], spec)


def quantize_dual(
    x: torch.Tensor,
    row: QuantSpec,
    column: QuantSpec,
    *,
    rng: torch.Tensor | None = None,
    packer: str = "auto",
    pad: bool = False,
    site: torch.Tensor | None = None,
    role: str = "input",
) -> tuple[MXBlob, MXBlob]:
    """x (R, K) -> its row blob (R, K) and its column blob (K, R), reading x once.

    Equal bytes to `quantize_rows` and `quantize_columns` with the same rng.
    """
    data, scale, data_t, scale_t = ops.quantize(
        x, rng, str(row), str(column), packer, pad, site, role
    )
    rows, cols = x.shape
    return MXBlob(data, scale, rows, cols, row), MXBlob(data_t, scale_t, cols, rows, column)
