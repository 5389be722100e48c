# SPDX-License-Identifier: Apache-2.0
"""MXStorage: a tensor of a linear layer as its row pack, its column pack, or both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformer_engine.pytorch.quantized_tensor import QuantizedTensorStorage

from mxflux.mx.blob import MXBlob
from mxflux.mx.errors import MissingOperandError
from mxflux.mx.spec import QuantSpec

if TYPE_CHECKING:
    from mxflux.te.quantizer import MXQuantizer

#: One pack: data and scale. A BF16 pack is the values themselves and an empty scale.
Pack = tuple[torch.Tensor, torch.Tensor]


class MXStorage(QuantizedTensorStorage):
    """What a quantizer made of a tensor (.., K) with M leading elements.

    data, scale: the row pack (M, K); data_t, scale_t: the column pack (K, M), each None where it
    was not packed or was dropped. Not a torch.Tensor: TE takes only such storages for custom ones.
    """

    custom = True
    #: The name of `custom` up to TE 2.9.
    experimental = True

    def __init__(
        self,
        shape: torch.Size,
        dtype: torch.dtype,
        device: torch.device,
        quantizer: MXQuantizer,
        row: Pack | None,
        column: Pack | None,
    ) -> None:
        self.original_shape = torch.Size(shape)
        self.dtype = self._dtype = dtype
        self.device = device
        self._quantizer: MXQuantizer = quantizer
        self._specs = (quantizer.row, quantizer.column)
        self.data: torch.Tensor | None
        self.scale: torch.Tensor | None
        self.data_t: torch.Tensor | None
        self.scale_t: torch.Tensor | None
        self.data, self.scale = row or (None, None)
        self.data_t, self.scale_t = column or (None, None)

    @property
    def shape(self) -> torch.Size:
        """Logical shape, whatever is left of the packs."""
        return self.original_shape

    def size(self, dim: int | None = None) -> Any:
        """Logical shape, or one of its lengths."""
        return self.original_shape if dim is None else self.original_shape[dim]

    def get_usages(self) -> dict[str, bool]:
        """Which packs are there."""
        return {"rowwise": self.data is not None, "columnwise": self.data_t is not None}

    def update_usage(
        self, rowwise_usage: bool | None = None, columnwise_usage: bool | None = None
    ) -> None:
        """Drop what is not wanted; MissingOperandError for what was never packed."""
        if rowwise_usage:
            self.operand(column=False)
        if columnwise_usage:
            self.operand(column=True)
        if rowwise_usage is False:
            self.data = self.scale = None
        if columnwise_usage is False:
            self.data_t = self.scale_t = None

    def operand(self, *, column: bool) -> MXBlob | torch.Tensor:
        """The pack in one direction as a GEMM operand; a plain tensor where it is BF16."""
        data, scale = (self.data_t, self.scale_t) if column else (self.data, self.scale)
        if data is None or scale is None:
            raise MissingOperandError(
                f"{self._quantizer.where}: {'column' if column else 'row'} pack of "
                f"{tuple(self.original_shape)} is asked for and was not packed, or was dropped "
                "(a backward after a forward without gradients?)"
            )
        text = self._specs[column]
        if not text:
            return data
        length = self.original_shape[-1]
        rows = self.original_shape.numel() // max(length, 1)
        if column:
            rows, length = length, rows
        return MXBlob(data, scale, rows, length, QuantSpec.parse(text))

    def dequantize(self, *, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The values in the logical shape, from the row pack if it is there."""
        column = self.data is None
        operand = self.operand(column=column)
        values = operand.dequantize() if isinstance(operand, MXBlob) else operand
        return (
            (values.t() if column else values).reshape(self.original_shape).to(dtype or self.dtype)
        )

    def prepare_for_saving(self) -> tuple[list[torch.Tensor | None], MXStorage]:
        """The tensors, and a new storage without them: this one may sit in the weight cache."""
        shell = object.__new__(type(self))
        shell.__dict__.update(self.__dict__)
        shell.clear()
        return self._tensors(), shell

    def restore_from_saved(self, tensors: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Take the first four back, return the rest."""
        self.data, self.scale, self.data_t, self.scale_t = tensors[:4]
        return tensors[4:]

    def get_data_tensors(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Data of the row and the column pack."""
        return self.data, self.data_t

    def clear(self) -> None:
        """Let go of every tensor."""
        self.data = self.scale = self.data_t = self.scale_t = None

    def copy_from_storage(self, src: QuantizedTensorStorage) -> None:
        """Take over the packs of `src`."""
        if not isinstance(src, MXStorage) or src.original_shape != self.original_shape:
            raise TypeError(f"{self._quantizer.where}: cannot copy from {src!r}")
        self.__dict__.update(src.__dict__)

    def quantize_(
        self, tensor: torch.Tensor, *, noop_flag: torch.Tensor | None = None
    ) -> MXStorage:
        """Pack `tensor` into this storage, in the directions that the quantizer wants now.

        noop_flag: one element; where it is not zero the old bytes stay. It is read on the device,
        and then the buffers stay where they are: a captured CUDA graph depends on both.
        """
        new = self._quantizer.quantize(tensor, dtype=self.dtype)
        if noop_flag is None:
            self.restore_from_saved(new._tensors())
            return self
        if new.get_usages() != self.get_usages():
            raise MissingOperandError(
                f"{self._quantizer.where}: a skippable update keeps its buffers, but "
                f"{self.get_usages()} is packed and {new.get_usages()} is wanted"
            )
        keep = noop_flag.reshape(()) != 0
        for old, fresh in zip(self._tensors(), new._tensors(), strict=True):
            # A BF16 pack is a view of the tensor itself: nothing to copy.
            if old is not None and fresh is not None and old.data_ptr() != fresh.data_ptr():
                old.copy_(torch.where(keep, old, fresh))
        return self

    def _tensors(self) -> list[torch.Tensor | None]:
        return [self.data, self.scale, self.data_t, self.scale_t]

    def __repr__(self) -> str:
        packs = ", ".join(name for name, there in self.get_usages().items() if there)
        return (
            f"MXStorage({self._quantizer.where}, {tuple(self.original_shape)}, {packs or 'empty'})"
        )
