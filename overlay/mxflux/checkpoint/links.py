# SPDX-License-Identifier: Apache-2.0
"""A link: the smallest group of tensors that moves between two layouts as one, both ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Link:
    """Native tensors and the foreign ones that hold the same numbers.

    ``to_native`` and ``to_foreign`` are inverse permutations of elements: no arithmetic, so that
    a round trip is exact in every dtype.
    """

    native: tuple[str, ...]
    foreign: tuple[str, ...]
    to_native: Callable[[Tensors], Tensors]
    to_foreign: Callable[[Tensors], Tensors]

    def foreign_shapes(self, native_shapes: dict[str, Shape]) -> dict[str, Shape]:
        """Shapes of the foreign tensors, found by moving empty ones."""
        empty = tuple(torch.empty(native_shapes[name], device="meta") for name in self.native)
        moved = self.to_foreign(empty)
        return {name: tuple(tensor.shape) for name, tensor in zip(self.foreign, moved, strict=True)}


def same(native: str, foreign: str) -> Link:
    """One tensor under another name."""
    return Link((native,), (foreign,), lambda tensors: tensors, lambda tensors: tensors)


def swapped_halves(native: str, foreign: str) -> Link:
    """One tensor whose two halves along axis 0 change places: (scale, shift) <-> (shift, scale)."""

    def swap(tensors: Tensors) -> Tensors:
        first, second = tensors[0].chunk(2)
        return (torch.cat((second, first)),)

    return Link((native,), (foreign,), swap, swap)


def fused_qkv(native: str, foreign: tuple[str, str, str], heads: int) -> Link:
    """Per-head [q|k|v] rows (Megatron) <-> three tensors."""

    def to_foreign(tensors: Tensors) -> Tensors:
        parts = _per_head(tensors[0], heads).unbind(1)
        return tuple(part.flatten(0, 1).contiguous() for part in parts)

    def to_native(tensors: Tensors) -> Tensors:
        return (_fuse(tensors, heads),)

    return Link((native,), foreign, to_native, to_foreign)


def stacked_qkv(native: str, foreign: str, heads: int) -> Link:
    """Per-head [q|k|v] rows (Megatron) <-> one tensor with rows [Q;K;V] (BFL)."""

    def to_foreign(tensors: Tensors) -> Tensors:
        return (_stack(tensors[0], heads),)

    def to_native(tensors: Tensors) -> Tensors:
        return (_fuse(tensors[0].chunk(3), heads),)

    return Link((native,), (foreign,), to_native, to_foreign)


def stacked_qkv_mlp(native: tuple[str, str], foreign: str, heads: int, hidden: int) -> Link:
    """(fused QKV, MLP input) <-> one tensor with rows [Q;K;V;MLP] (BFL ``linear1``)."""

    def to_foreign(tensors: Tensors) -> Tensors:
        return (torch.cat((_stack(tensors[0], heads), tensors[1])),)

    def to_native(tensors: Tensors) -> Tensors:
        qkv, mlp = tensors[0][: 3 * hidden], tensors[0][3 * hidden :]
        return _fuse(qkv.chunk(3), heads), mlp.contiguous()

    return Link(native, (foreign,), to_native, to_foreign)


def joined_columns(native: tuple[str, str], foreign: str, first: int) -> Link:
    """Two weights <-> one, side by side: columns [attention | MLP] of the output projection."""

    def to_foreign(tensors: Tensors) -> Tensors:
        return (torch.cat(tensors, dim=1),)

    def to_native(tensors: Tensors) -> Tensors:
        return tensors[0][:, :first].contiguous(), tensors[0][:, first:].contiguous()

    return Link(native, (foreign,), to_native, to_foreign)


def _per_head(fused: Tensor, heads: int) -> Tensor:
    """[heads, 3, D, ...] view of a fused tensor [heads*3*D, ...]."""
    return fused.unflatten(0, (heads, 3, -1))


def _fuse(parts: Tensors, heads: int) -> Tensor:
    return torch.stack([part.unflatten(0, (heads, -1)) for part in parts], dim=1).flatten(0, 2)


def _stack(fused: Tensor, heads: int) -> Tensor:
    return _per_head(fused, heads).transpose(0, 1).flatten(0, 2).contiguous()
