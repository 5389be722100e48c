# SPDX-License-Identifier: Apache-2.0
"""The least custom quantizer that TE accepts: it keeps the values, so that a GEMM has one answer.

The patches to TE's custom path are about TE's Python, not about a number format. With this
quantizer their tests need no overlay, and every result can be compared with fp64 autograd.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from transformer_engine.pytorch.quantized_tensor import QuantizedTensorStorage, Quantizer


class ExactStorage(QuantizedTensorStorage):
    """Rows and columns of a tensor as fp32 values; a storage and not a Tensor, hence custom."""

    custom = True

    def __init__(self, source: torch.Tensor, quantizer: ExactQuantizer) -> None:
        self.dtype = self._dtype = source.dtype
        self.original_shape, self.device = tuple(source.shape), source.device
        self._quantizer = quantizer
        self.data = self.scale = self.data_t = self.scale_t = None
        self.fill(source)

    def fill(self, source: torch.Tensor) -> None:
        """Take the values of `source` in the directions that the quantizer wants."""
        values = source.detach().reshape(-1, source.shape[-1]).float()
        if self._quantizer.rowwise_usage:
            self.data, self.scale = values.clone(), torch.ones(1)
        if self._quantizer.columnwise_usage:
            self.data_t, self.scale_t = values.t().contiguous(), torch.ones(1)

    def quantize_(self, tensor: torch.Tensor, **_: Any) -> ExactStorage:
        """In place, as the weight cache asks for it."""
        self._quantizer.quantized[self._quantizer.role] += 1
        self.fill(tensor)
        return self

    def update_usage(
        self, rowwise_usage: bool | None = None, columnwise_usage: bool | None = None
    ) -> None:
        if (rowwise_usage and self.data is None) or (columnwise_usage and self.data_t is None):
            raise RuntimeError(
                f"{self._quantizer.role}: a direction was asked for and never packed"
            )
        if rowwise_usage is False:
            self.data = self.scale = None
        if columnwise_usage is False:
            self.data_t = self.scale_t = None

    def prepare_for_saving(self) -> tuple[list[torch.Tensor | None], ExactStorage]:
        shell = object.__new__(ExactStorage)
        shell.__dict__.update(self.__dict__, data=None, scale=None, data_t=None, scale_t=None)
        return [self.data, self.scale, self.data_t, self.scale_t], shell

    def restore_from_saved(self, tensors: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
        self.data, self.scale, self.data_t, self.scale_t = tensors[:4]
        return tensors[4:]

    def size(self, *dim: int) -> Any:
        shape = torch.Size(self.original_shape)
        return shape[dim[0]] if dim else shape


class ExactQuantizer(Quantizer):
    """Counts what it quantized and multiplied, by role and by GEMM."""

    custom = True

    def __init__(self, role: str, quantized: Counter[str], multiplied: Counter[str]) -> None:
        super().__init__(rowwise=True, columnwise=True)
        self.role, self.quantized, self.multiplied = role, quantized, multiplied
        self.internal = True

    def quantize(self, tensor: torch.Tensor, **_: Any) -> ExactStorage:
        self.quantized[self.role] += 1
        return ExactStorage(tensor, self)

    def qgemm(
        self,
        qx: torch.Tensor,
        qw: torch.Tensor,
        _m_params: object,
        out_dtype: torch.dtype,
        _sx: torch.Tensor,
        _sw: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        gemm_type: Any,
        **_: Any,
    ) -> torch.Tensor:
        """(M, K) x (N, K) -> (M, N) in `out_dtype`, through fp64."""
        self.multiplied[gemm_type.name] += 1
        y = qx.double() @ qw.double().t()
        return (y if bias is None else y + bias.double()).to(out_dtype)


class ExactFactory:
    """A qfactory: `quantized` and `multiplied` count over all the quantizers that it made."""

    def __init__(self) -> None:
        self.quantized: Counter[str] = Counter()
        self.multiplied: Counter[str] = Counter()

    def __call__(self, role: Any = None) -> ExactQuantizer:
        if isinstance(role, str):
            name = role.removeprefix("linear_")  # TE up to 2.15
        else:
            name = getattr(role, "tensor_type", "") or "boundary"
        return ExactQuantizer(name, self.quantized, self.multiplied)
