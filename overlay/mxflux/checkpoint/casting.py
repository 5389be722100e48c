# SPDX-License-Identifier: Apache-2.0
"""Weights in another dtype, rounded to nearest, when a conversion asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from .errors import CheckpointError
from .safetensors_file import TensorInfo

if TYPE_CHECKING:
    from torch import Tensor

CAST_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class View(Protocol):
    """Native tensors by name: what they are, and their values on demand."""

    tensors: dict[str, TensorInfo]

    def load(self, name: str) -> Tensor:
        """The values of one."""
        ...


class CastView:
    """A view whose tensors are rounded to one dtype (to nearest, ties to even)."""

    def __init__(self, view: View, dtype: torch.dtype) -> None:
        self._view = view
        self._dtype = dtype
        self.tensors = {name: TensorInfo(t.shape, dtype) for name, t in view.tensors.items()}

    def load(self, name: str) -> Tensor:
        """One tensor; raises CheckpointError when a finite value becomes infinite."""
        exact = self._view.load(name)
        cast = exact.to(self._dtype)
        overflown = torch.isfinite(exact.float()) & ~torch.isfinite(cast.float())
        if overflown.any():
            raise CheckpointError(
                f"tensor {name}: {int(overflown.sum())} of {exact.numel()} values are too large "
                f"for {self._dtype}, the largest is {exact[overflown].float().abs().max().item():g}"
            )
        return cast


def cast_dtype(name: str) -> torch.dtype:
    """The dtype of a name; raises ValueError for one that weights are not rounded to."""
    if name not in CAST_DTYPES:
        raise ValueError(f"dtype={name!r} is unknown. Choose from: {', '.join(CAST_DTYPES)}.")
    return CAST_DTYPES[name]
