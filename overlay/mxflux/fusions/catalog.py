# SPDX-License-Identifier: Apache-2.0
"""Every kernel at Flux's shapes, as launches: what the cross-compiler and the tuner iterate."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mxflux.fusions import ln_plans, norm_rope, norm_rope_qkv
from mxflux.fusions.launch import Launch

Tensor = torch.Tensor
HEADS = 24
HEAD_DIM = 128
HIDDEN = HEADS * HEAD_DIM
SHAPES = ((512, 64), (512, 32), (256, 32), (4608, 1))
"""(S, B): single stream and joint streams of 256 px at micro-batches 64 and 32, and one 1024 px
sample.
"""


@dataclass(frozen=True)
class Call:
    """A launch and the pointers it takes; bytes: the least it must move through memory."""

    launch: Launch
    pointers: tuple[Tensor, ...]
    bytes: int

    def __call__(self) -> None:
        """Launch on real tensors."""
        self.launch(*self.pointers)


@dataclass(frozen=True)
class Factory:
    """Builds tensors and calls; device "meta" allocates nothing."""

    arch: str
    device: str = "meta"
    dtype: torch.dtype = torch.bfloat16
    weight_dtype: torch.dtype = torch.bfloat16

    def calls(self, op: str, seq: int, batch: int, config: dict[str, int]) -> tuple[Call, ...]:
        """The launches of one op at [seq, batch]: the kernel and, after a backward, the sum of its
        partials.
        """
        build = {
            "norm_rope_forward": self._norm_rope_forward,
            "norm_rope_backward": self._norm_rope_backward,
            "qkv_forward": self._qkv_forward,
            "qkv_backward": self._qkv_backward,
        }.get(op)
        if build is not None:
            return build(seq, batch, config)
        if op.endswith("forward"):
            return self._ln_forward(seq, batch, config, gated=op.startswith("gate"))
        return self._ln_backward(seq, batch, config, gated=op.startswith("gate"))

    def tensor(self, *sizes: int, dtype: torch.dtype | None = None) -> Tensor:
        """Normal values (nothing on the meta device)."""
        made = torch.empty(sizes, dtype=dtype or self.dtype, device=self.device)
        return made if self.device == "meta" else made.normal_()

    def _fp32(self, *sizes: int) -> Tensor:
        return self.tensor(*sizes, dtype=torch.float32)

    def _weight(self) -> Tensor:
        return self.tensor(HEAD_DIM, dtype=self.weight_dtype)

    def _heads(self, seq: int, batch: int, parts: int = 1) -> Tensor:
        return self.tensor(seq, batch, HEADS, parts * HEAD_DIM)

    def _qkv_forward(self, seq: int, batch: int, config: dict[str, int]) -> tuple[Call, ...]:
        mixed, table = self._heads(seq, batch, 3), self._fp32(seq, 1, HEAD_DIM)
        plan = norm_rope_qkv.forward_plan(mixed, table, 1e-6, config)
        outputs = [self.tensor(*plan.shape) for _ in range(3)]
        rstd = self._fp32(*plan.rstd)
        pointers = (mixed, self._weight(), self._weight(), table, *outputs, rstd)
        return (Call(plan.launch, pointers, size(*pointers)),)

    def _qkv_backward(self, seq: int, batch: int, config: dict[str, int]) -> tuple[Call, ...]:
        mixed, table = self._heads(seq, batch, 3), self._fp32(seq, 1, HEAD_DIM)
        dq, dk, dv = (self._heads(seq, batch) for _ in range(3))
        plan = norm_rope_qkv.backward_plan((dq, dk, dv), mixed, table, config, self.arch)
        rstd = self._fp32(2, seq * batch * HEADS)
        partial, weights = self._fp32(*plan.partial), [self._weight() for _ in range(4)]
        dmixed = self.tensor(*plan.shape)
        pointers = (dq, dk, dv, mixed, *weights[:2], table, rstd, dmixed, partial)
        least = size(dq, dk, dv, mixed, dmixed, rstd, table) - size(mixed) // 3
        return Call(plan.launch, pointers, least), _sum(plan.reduce, partial, weights[2:])

    def _norm_rope_forward(self, seq: int, batch: int, config: dict[str, int]) -> tuple[Call, ...]:
        x, table = self._heads(seq, batch, 3)[..., :HEAD_DIM], self._fp32(seq, 1, HEAD_DIM)
        plan = norm_rope.forward_plan(x, table, 1e-6, config)
        pointers = (x, self._weight(), table, self.tensor(*plan.shape), self._fp32(*plan.rstd))
        return (Call(plan.launch, pointers, size(*pointers)),)

    def _norm_rope_backward(self, seq: int, batch: int, config: dict[str, int]) -> tuple[Call, ...]:
        x, table = self._heads(seq, batch, 3)[..., :HEAD_DIM], self._fp32(seq, 1, HEAD_DIM)
        grad = self._heads(seq, batch)
        plan = norm_rope.backward_plan(grad, x, table, config, self.arch)
        partial, weights = self._fp32(*plan.partial), [self._weight() for _ in range(2)]
        rstd, dx = self._fp32(seq * batch * HEADS), self.tensor(*plan.shape)
        pointers = (grad, x, weights[0], table, rstd, dx, partial)
        least = size(grad, x, dx, rstd, table)
        return Call(plan.launch, pointers, least), _sum(plan.reduce, partial, weights[1:])

    def _ln_forward(
        self, seq: int, batch: int, config: dict[str, int], *, gated: bool
    ) -> tuple[Call, ...]:
        x = self.tensor(seq, batch, HIDDEN)
        y = self.tensor(seq, batch, HIDDEN) if gated else x
        gate, scale, shift = self.tensor(batch, 3 * HIDDEN).chunk(3, dim=-1)
        plan = ln_plans.forward_plan(x, y, gate, scale, shift, 1e-6, config, gated=gated)
        out = self.tensor(*plan.shape)
        h = self.tensor(*plan.shape) if gated else out
        mean, rstd = self._fp32(plan.rows), self._fp32(plan.rows)
        least = size(x, out, mean, rstd, scale, shift) + (size(y, h, gate) if gated else 0)
        return (Call(plan.launch, (x, y, gate, scale, shift, h, out, mean, rstd), least),)

    def _ln_backward(
        self, seq: int, batch: int, config: dict[str, int], *, gated: bool
    ) -> tuple[Call, ...]:
        grad, h = self.tensor(seq, batch, HIDDEN), self.tensor(seq, batch, HIDDEN)
        dh = self.tensor(seq, batch, HIDDEN) if gated else grad
        y = self.tensor(seq, batch, HIDDEN) if gated else h
        gate, scale = self.tensor(batch, 2 * HIDDEN).chunk(2, dim=-1)
        plan = ln_plans.backward_plan((grad, dh), h, y, gate, scale, config, self.arch, gated=gated)
        mean, rstd = self._fp32(seq * batch), self._fp32(seq * batch)
        dx = self.tensor(*plan.shape)
        dy = self.tensor(*plan.shape) if gated else dx
        partial = self._fp32(*plan.partial)
        outputs = [self.tensor(batch, HIDDEN) for _ in range(plan.partial[0])]
        pointers = (grad, dh, h, y, gate, scale, mean, rstd, dx, dy, partial)
        least = size(grad, h, dx, mean, rstd, scale, *outputs) + (
            size(dh, y, dy, gate) if gated else 0
        )
        return Call(plan.launch, pointers, least), _sum(plan.reduce, partial, outputs)


def size(*tensors: Tensor) -> int:
    """Bytes of all tensors, elements seen counted once each."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def table_rows(op: str, seq: int, batch: int) -> tuple[int, int]:
    """(width, rows) under which tables.configuration finds the op at [seq, batch]."""
    if op.startswith(("norm_rope", "qkv")):
        return HEAD_DIM, seq * batch * HEADS
    return HIDDEN, seq * batch


def _sum(launch: Launch, partial: Tensor, outputs: list[Tensor]) -> Call:
    padded = (*outputs, outputs[-1], outputs[-1])[:3]
    return Call(launch, (partial, *padded), size(partial, *outputs))
