# SPDX-License-Identifier: Apache-2.0
"""Plans: what the signature of a call fixes, worked out and checked once a signature."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from mxflux.fusions.launch import Launch

Plan = TypeVar("Plan")
Layout = tuple[tuple[int, ...], tuple[int, ...]]
LIMIT = 1024
"""Signatures kept an op. Training has a handful; a server with free shapes must not grow without
bound.
"""

SHARED_BYTES = 88 << 10
"""Shared memory that a pipeline may take: of the 99 KiB that every CUDA device since sm_80 gives a
block, less rows of the RoPE table and the scratch of reductions.
"""

_UNKNOWN = "unknown"
_PLAIN = (torch.Tensor, torch.nn.Parameter)


COPY: Any = object()
"""In place of a plan: some argument has an inner stride other than 1 and must be copied first."""


class Plans(Generic[Plan]):
    """signature -> plan; thread-safe, since a plan is immutable and dict operations are atomic."""

    def __init__(self) -> None:
        self._plans: dict[Hashable, Plan] = {}

    def get(self, key: Hashable, make: Callable[..., Plan], *args: Any) -> Plan:
        """The plan of `key`, made (and its arguments checked) by make(*args) on first sight."""
        plan = self._plans.get(key)
        if plan is None:
            plan = make(*args)
            if len(self._plans) >= LIMIT:
                self._plans.clear()
            self._plans[key] = plan
        return plan


def fitting_stages(wanted: int, bytes_each: int) -> int:
    """Stages of a loop's pipeline, `wanted` or as many as SHARED_BYTES hold: all but one of them
    keep an iteration's loads, `bytes_each`, in shared memory.
    """
    return max(1, min(wanted, 1 + SHARED_BYTES // bytes_each))


def contiguous(*sizes: int) -> Layout:
    """(sizes, strides) for new_empty_strided, which takes half the time of new_empty."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size or 1
    return sizes, tuple(reversed(strides))


@dataclass(frozen=True)
class BackwardPlan:
    """Sizes of the input gradient and of the partials, the launch and the sum of the partials."""

    shape: tuple[int, ...]
    partial: tuple[int, ...]
    acc: torch.dtype
    launch: Launch
    reduce: Launch

    @cached_property
    def layout(self) -> Layout:
        """Of the input gradient."""
        return contiguous(*self.shape)

    @cached_property
    def partial_layout(self) -> Layout:
        """Of the partials."""
        return contiguous(*self.partial)


def signature(*tensors: torch.Tensor) -> tuple[Hashable, ...]:
    """What a plan may depend on: shape, strides, dtype and device of every tensor."""
    return tuple([(t.shape, t.stride(), t.dtype, t.device) for t in tensors])


def remembered(check: Callable[..., str | None]) -> Callable[..., str | None]:
    """`check` on tensors, looked up by their signature: what a gate asks on every step.

    A tracer runs the check itself: its sizes may be symbols.
    """
    verdicts: dict[Hashable, str | None] = {}

    @functools.wraps(check)
    def problem(*tensors: torch.Tensor) -> str | None:
        if torch.compiler.is_compiling():
            return check(*tensors)
        key = signature(*tensors)
        verdict = verdicts.get(key, _UNKNOWN)
        if verdict is _UNKNOWN:
            verdict = check(*tensors)
            if len(verdicts) >= LIMIT:
                verdicts.clear()
            verdicts[key] = verdict
        return verdict

    return problem


def dispatched(*tensors: torch.Tensor) -> bool:
    """Whether the registered op must run, because a tracer, a dispatch mode, a functorch
    transform or a tensor subclass watches.

    Otherwise the same launch runs straight from an autograd.Function: the dispatcher's Python
    layers cost 20 us a call, most of a small kernel's time.
    """
    if (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._are_functorch_transforms_active()
    ):
        return True
    for tensor in tensors:  # noqa: SIM110  (any() with a generator takes twice the time)
        if type(tensor) not in _PLAIN:
            return True
    return False


def recorder(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """function.apply without its layer for functorch (`dispatched` says yes there): 3 us a call."""
    record: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return record


def differentiable(*tensors: torch.Tensor) -> bool:
    """Whether autograd must record this call."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor.requires_grad:
                return True
    return False
