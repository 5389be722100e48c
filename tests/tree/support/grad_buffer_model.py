# SPDX-License-Identifier: Apache-2.0
"""A model with a parameter of every kind that DDP's grad buffer can meet."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

WIDTH = 13


class KernelLinear(torch.autograd.Function):
    """x @ w.T whose weight gradient a "kernel" accumulates into main_grad, as fused wgrad does.

    ``kind`` says what it leaves besides: "flag" sets grad_added_to_main_grad and returns garbage,
    "silent" returns no gradient, "dummy" returns zeros without setting the flag, "overwrite" is
    "flag" of a kernel that writes the first gradient over a stale main_grad.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: Any, kind: str) -> torch.Tensor:
        """x, weight: (..., k), (n, k)."""
        ctx.save_for_backward(x, weight)
        ctx.kind = kind
        return x @ weight.t()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        """Accumulate behind the backward hook."""
        x, weight = ctx.saved_tensors
        product = grad.t() @ x
        if getattr(weight, "main_grad_is_stale", False):
            torch.add(product, 0, out=weight.main_grad)
            weight.main_grad_is_stale = False
        else:
            weight.main_grad.add_(product)
        dummy = torch.zeros_like(weight)
        if ctx.kind in ("flag", "overwrite"):
            weight.overwrites_stale_main_grad = ctx.kind == "overwrite"
            weight.grad_added_to_main_grad = True
            if not getattr(weight, "zero_out_wgrad", False):
                dummy.fill_(float("nan"))
        return grad @ weight, None if ctx.kind == "silent" else dummy, None


class DelayedLinear(torch.nn.Module):
    """A linear that computes its weight gradient in backward_dw(), as with delay_wgrad_compute."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = parameter(dtype)
        self.weight.skip_backward_post_hook = True
        self.pending: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.hooks: list[Any] = []

    def register_wgrad_accumulation_and_reduce_hooks(self, hook: Any) -> None:
        """What DDP calls in place of registering the backward hook."""
        self.hooks.append(hook)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (rows, WIDTH)."""
        out = x @ self.weight.detach().t()
        if out.requires_grad:  # not in the first pass of activation checkpointing
            out.register_hook(lambda grad: self.pending.append((x.detach(), grad)))
        return out

    def backward_dw(self) -> None:
        """The delayed half of the backward pass."""
        x, grad = self.pending.pop()
        self.weight.grad = grad.t() @ x
        for hook in self.hooks:
            hook()


def parameter(dtype: torch.dtype, *shape: int) -> Any:
    """A random parameter of this shape, (WIDTH, WIDTH) by default."""
    return torch.nn.Parameter(torch.randn(*(shape or (WIDTH, WIDTH)), dtype=dtype) * 0.1)


class Zoo(torch.nn.Module):
    """Plain, shared, tied, kernel-written, expert, delayed, sparse, frozen and idle parameters."""

    def __init__(self, dtype: torch.dtype = torch.bfloat16, *, every: bool) -> None:
        """``every``: each parameter gets a gradient in each step, as overlapping demands."""
        super().__init__()
        self.every = every
        self.up = torch.nn.Linear(WIDTH, 37, dtype=dtype)
        self.down = torch.nn.Linear(37, WIDTH, dtype=dtype)
        self.recomputed = torch.nn.Linear(WIDTH, WIDTH, dtype=dtype)
        self.words = torch.nn.Embedding(7, WIDTH, dtype=dtype)
        self.sparse = torch.nn.Embedding(7, WIDTH, sparse=True, dtype=dtype)
        self.head = torch.nn.Linear(WIDTH, 7, bias=False, dtype=dtype)
        self.head.weight = self.words.weight  # tied
        self.used_twice = parameter(dtype)
        self.expert = parameter(dtype)
        self.expert.allreduce = False
        self.flagged = parameter(dtype)
        self.flagged_zero = parameter(dtype)
        self.flagged_zero.zero_out_wgrad = True
        self.unflagged = parameter(dtype)
        self.unflagged_zero = parameter(dtype)
        self.negative_zero = parameter(dtype, 5)
        self.delayed = DelayedLinear(dtype)
        self.frozen = parameter(dtype)
        self.frozen.requires_grad = False
        self.sometimes = torch.nn.Linear(WIDTH, WIDTH, dtype=dtype)
        self.never = parameter(dtype, 5)
        self.overwriting = parameter(dtype)
        self.overwriting_sometimes = parameter(dtype)

    def forward(self, x: torch.Tensor, step: int) -> torch.Tensor:
        """x: (rows, WIDTH); returns (rows, 7)."""
        ids = torch.arange(len(x)) % 5
        x = x + self.words(ids) + self.sparse(ids)
        x = torch.nn.functional.gelu(self.down(torch.tanh(self.up(x))))
        x = x + checkpoint(self.recomputed, x, use_reentrant=True)
        x = torch.tanh(x @ self.used_twice) @ self.used_twice
        x = torch.tanh(KernelLinear.apply(x, self.flagged, "flag"))
        x = torch.tanh(KernelLinear.apply(x, self.flagged_zero, "flag"))
        x = torch.tanh(KernelLinear.apply(x, self.flagged, "flag"))
        x = torch.tanh(KernelLinear.apply(x, self.overwriting, "overwrite"))
        x = torch.tanh(KernelLinear.apply(x, self.overwriting, "overwrite"))
        if self.every or step % 3 != 1:
            x = torch.tanh(KernelLinear.apply(x, self.overwriting_sometimes, "overwrite"))
        x = x + KernelLinear.apply(x, self.unflagged, "dummy" if self.every else "silent")
        x = x + KernelLinear.apply(x, self.unflagged_zero, "dummy")
        x = x + self.delayed(x) + x @ self.expert + x @ self.frozen
        if self.every or step % 2 == 0:
            x = x + self.sometimes(x)
        x = x - (self.negative_zero * 0.0).sum()  # its gradient is -0.0
        if self.every:
            x = x + self.never.sum()
        return self.head(x)
