# SPDX-License-Identifier: Apache-2.0
"""Wrong deferrals, one mistake each, that the equivalence test must tell from the right one."""

from __future__ import annotations

from typing import Any

import torch

from mxflux.megatron.grad_buffer import GradBufferDeferral


class KeepsUnusedGradients(GradBufferDeferral):
    """Reduces the old gradient of a parameter that got none."""

    def before_reduce(self, bucket_group: Any) -> None:
        for bucket in bucket_group.buckets:
            for param in bucket.params_list:
                self._check_kernel(param)


class MultipliesByZero(GradBufferDeferral):
    """Clears unused gradients by a multiplication, which keeps NaN."""

    def before_reduce(self, bucket_group: Any) -> None:
        for bucket in bucket_group.buckets:
            for param in bucket.params_list:
                self._check_kernel(param)
                if param in self.stale:
                    param.main_grad.mul_(0)
                    self.stale.remove(param)


class CopiesTheFirstGradient(GradBufferDeferral):
    """Keeps the sign of zeros, which adding to zero does not."""

    def accumulate(self, param: Any) -> None:
        first = param in self.stale
        super().accumulate(param)
        if first and not param.grad.is_sparse:
            param.main_grad.copy_(param.grad)


class OverwritesEveryGradient(GradBufferDeferral):
    """Forgets the microbatches, and the uses within one, before the last."""

    def accumulate(self, param: Any) -> None:
        super().accumulate(param)
        if param in self.by_hook:
            self.stale.add(param)


class AddsToStaleGradients(GradBufferDeferral):
    """Leaves out the fill without overwriting."""

    def accumulate(self, param: Any) -> None:
        self.stale.discard(param)
        super().accumulate(param)


class TakesKernelsForHooks(GradBufferDeferral):
    """Defers the parameters that a kernel writes, too."""

    def _check_kernel(self, param: Any) -> None:
        pass

    def _learn(self, param: Any, *, by_kernel: bool) -> None:
        super()._learn(param, by_kernel=False)


class IgnoresUnflaggedKernels(GradBufferDeferral):
    """Believes that a kernel always sets its flag."""

    def _learn(self, param: Any, *, by_kernel: bool) -> None:
        super()._learn(param, by_kernel=by_kernel and param.grad_added_to_main_grad)


class LeavesPadding(GradBufferDeferral):
    """Zeroes parameters only."""

    def __init__(self, ddp: Any) -> None:
        super().__init__(ddp)
        self.padding: list[list[torch.Tensor]] = [[] for _ in self.buffers]


class DefersUnknownParameters(GradBufferDeferral):
    """Takes every parameter for one that the hook writes."""

    def __init__(self, ddp: Any) -> None:
        super().__init__(ddp)
        self.by_hook = set(self.names)


MUTANTS = (
    KeepsUnusedGradients,
    MultipliesByZero,
    CopiesTheFirstGradient,
    OverwritesEveryGradient,
    AddsToStaleGradients,
    TakesKernelsForHooks,
    IgnoresUnflaggedKernels,
    LeavesPadding,
    DefersUnknownParameters,
)
