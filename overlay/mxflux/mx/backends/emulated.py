# SPDX-License-Identifier: Apache-2.0
"""Backend `emulated`: dequantize exactly, multiply in fp32. Any device, any format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from mxflux.mx.blob import MXBlob

NAME = "emulated"
FORMATS = ("e2m1", "e2m3", "e3m2", "e4m3", "e5m2")
#: Formats whose every value times every scale is a bf16 number, scale byte 0 included.
BF16_EXACT = ("e2m1", "e2m3", "e3m2")


def missing(device: torch.device) -> str | None:  # noqa: ARG001 - runs anywhere
    """Never missing."""
    return None


def refusal(a: MXBlob, b: MXBlob) -> str | None:  # noqa: ARG001 - takes any pair
    """Refuses nothing."""
    return None


def result_dtype(wanted: torch.dtype) -> torch.dtype:  # noqa: ARG001 - always the accumulator
    """The fp32 accumulator, so that the caller rounds once."""
    return torch.float32


def multiply(a: MXBlob, b: MXBlob, dtype: torch.dtype) -> torch.Tensor:  # noqa: ARG001
    """A B^T in fp32. On CUDA the operands travel as bf16 where that is exact."""
    x, y = a.values(), b.values()
    shortest = min(x.shape[1], y.shape[1])
    x, y = x[:, :shortest], y[:, :shortest]
    if x.is_cuda and a.spec.format in BF16_EXACT and b.spec.format in BF16_EXACT:
        return torch.mm(x.bfloat16(), y.bfloat16().t(), out_dtype=torch.float32)
    # TF32 keeps 10 mantissa bits, more than any element has: exact operands either way.
    return x @ y.t()
