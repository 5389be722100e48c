# SPDX-License-Identifier: Apache-2.0
"""DDP without the zero fill: the first gradient of an iteration overwrites its grad-buffer slice.

Stock DDP fills every grad buffer with zeros at the start of an iteration and then adds every
gradient. For a parameter whose gradient comes through DDP's backward hook the fill and the read of
the first add can be left out, because writing the first gradient gives the same bits. Who writes a
parameter's ``main_grad`` is learnt, not configured:

* unknown: no gradient seen yet; its slice is zeroed at the start of each iteration, as in stock.
* hook: the backward hook adds its gradients; its slice is left stale, and overwritten.
* kernel: a fused weight-gradient kernel accumulates into the slice (``grad_added_to_main_grad``);
  it needs zeros to start from, so its slice is zeroed at the start of each iteration, as in stock.
* overwriting kernel: one that has set ``overwrites_stale_main_grad`` on the parameter. Its slice is
  left stale, ``main_grad_is_stale`` says so, and the kernel's first gradient overwrites it and
  clears that (``mxflux.mx.linear.weight_gradient``).

A hook parameter that received no gradient is zeroed right before its bucket is reduced, in
``start_grad_sync``, which every reduction passes. Until then its ``main_grad`` holds the reduced
gradient of an earlier iteration: nothing else may read ``main_grad`` between ``zero_grad_buffer``
and ``start_grad_sync``.

Not detected: a kernel that writes ``main_grad``, sets no flag and also returns a gradient through
the hook, if what it wrote in the first backward was all zeros (upstream has no such kernel).
"""

from __future__ import annotations

import logging
from typing import Any

import torch

logger = logging.getLogger(__name__)

# A torch.nn.Parameter to which DDP added main_grad and grad_added_to_main_grad.
Parameter = Any


def check_ddp_config(config: Any) -> None:
    """Refuse settings under which ``defer_grad_buffer_zero`` would have no effect.

    Args:
        config: a ``DistributedDataParallelConfig`` with the flag set.

    Raises:
        ValueError: for FSDP, and for grad buffers that double as all-gather buffers.
    """
    problems = []
    if (
        config.use_megatron_fsdp
        or config.use_custom_fsdp
        or hasattr(config, "reshard_after_forward")
    ):
        problems.append("FSDP does not use DDP's grad buffers")
    if config.reuse_grad_buf_for_mxfp8_param_ag:
        problems.append("reuse_grad_buf_for_mxfp8_param_ag needs the grad buffer zeroed")
    _refuse(problems)


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ValueError(
            f"defer_grad_buffer_zero: {'; '.join(problems)}. "
            "Unset defer_grad_buffer_zero, or the setting named here."
        )


def _model_problems(ddp: Any) -> list[str]:
    """What in the model, its config or its buffers makes the deferral unsafe or useless."""
    problems = []
    impl = getattr(ddp.config, "cuda_graph_impl", "none")
    if impl not in (None, "none"):
        problems.append(f"cuda_graph_impl={impl} replays gradients behind the backward hook")
    if getattr(ddp.config, "defer_embedding_wgrad_compute", False):
        problems.append("defer_embedding_wgrad_compute writes main_grad after the backward hook")
    buffers = ddp.buffers + ddp.expert_parallel_buffers
    if any(hasattr(buffer, "shared_buffer") for buffer in buffers):
        problems.append("MXFP8 parameters share the grad buffer")
    layer_wise = ddp.ddp_config.overlap_param_gather and not (
        ddp.ddp_config.use_distributed_optimizer
    )
    if layer_wise or any(
        getattr(param, "is_managed_by_layer_wise_optimizer", False)
        for buffer in buffers
        for param in buffer.params
    ):
        problems.append("the layer-wise optimizer gathers parameters in the grad buffer")
    return problems


def _padding(buffer: Any) -> list[torch.Tensor]:
    """Views of the parts of ``buffer.grad_data`` (numel,) that belong to no parameter."""
    gaps, end_of_last = [], 0
    spans = sorted((start, end) for start, end, _ in buffer.param_index_map.values())
    for start, end in [*spans, (buffer.numel, buffer.numel)]:
        if start > end_of_last:
            gaps.append(buffer.grad_data[end_of_last:start])
        end_of_last = end
    return gaps


class GradBufferDeferral:
    """Which grad-buffer slices of one DDP-wrapped model chunk are stale, and who writes them.

    ``DistributedDataParallel`` calls ``reset`` in place of the fill, ``accumulate`` in place of
    ``main_grad.add_(grad)`` in its backward hook, and ``before_reduce`` before each reduction.

    Args:
        ddp: the ``DistributedDataParallel`` under construction, its buffers allocated.

    Raises:
        ValueError: for CUDA graphs, shared grad buffers and other unsafe settings.
    """

    def __init__(self, ddp: Any) -> None:
        _refuse(_model_problems(ddp))
        self.buffers = ddp.buffers + ddp.expert_parallel_buffers
        trainable = (item for item in ddp.module.named_parameters() if item[1].requires_grad)
        self.names: dict[Parameter, str] = {param: name for name, param in trainable}
        self.padding = [_padding(buffer) for buffer in self.buffers]
        self.logs = ddp.dp_cp_group.rank() == 0
        self.stale: set[Parameter] = set()
        self.by_hook: set[Parameter] = set()
        self.by_kernel: set[Parameter] = set()
        self.reported = False
        for group in ddp.bucket_groups + ddp.expert_parallel_bucket_groups:
            group.grad_buffer_deferral = self

    def reset(self) -> None:
        """Zero what the hook will not overwrite, and mark the rest stale.

        Raises:
            RuntimeError: once a backward pass has shown that there is no such rest.
        """
        if not self.reported and (self.by_hook or self.by_kernel):
            self._report()
        for buffer, padding in zip(self.buffers, self.padding, strict=True):
            if not any(self._is_overwritten(param) for param in buffer.params):
                buffer.reset()
                continue
            to_zero = list(padding)
            for param in buffer.params:
                if self._is_overwritten(param):
                    self.stale.add(param)
                    param.main_grad_is_stale = param in self.by_kernel
                else:
                    to_zero.append(param.main_grad)
            if to_zero:
                torch._foreach_zero_(to_zero)

    def accumulate(self, param: Parameter) -> None:
        """Add ``param.grad`` to ``param.main_grad``, or overwrite a stale ``main_grad`` with it.

        Raises:
            RuntimeError: a kernel accumulated into the stale ``main_grad`` before.
        """
        grad = param.grad.data
        self._note_overwritten(param)
        if param in self.stale:
            self._check_kernel(param)
            self.stale.remove(param)
            param.main_grad_is_stale = False
            if grad.is_sparse:
                param.main_grad.zero_().add_(grad)
            else:
                # 0 + g and not a copy: stock turns the negative zeros of g into positive ones.
                torch.add(grad, 0, out=param.main_grad)
            return
        if param not in self.by_hook and param not in self.by_kernel:
            # A kernel without a flag shows by what it left in the slice that reset() zeroed.
            by_kernel = param.grad_added_to_main_grad or bool(param.main_grad.any())
            self._learn(param, by_kernel=by_kernel)
        param.main_grad.add_(grad)

    def before_reduce(self, bucket_group: Any) -> None:
        """Zero the slices of ``bucket_group`` that are still stale: they received no gradient.

        Raises:
            RuntimeError: a kernel accumulated into one of them.
        """
        unwritten = []
        for bucket in bucket_group.buckets:
            for param in bucket.params_list:
                self._note_overwritten(param)
                self._check_kernel(param)
                if param in self.stale:
                    unwritten.append(param)
                    param.main_grad_is_stale = False
        if unwritten:
            torch._foreach_zero_([param.main_grad for param in unwritten])
            self.stale.difference_update(unwritten)

    def _is_overwritten(self, param: Parameter) -> bool:
        """Whether the first gradient of ``param`` needs no zeros."""
        overwrites = getattr(param, "overwrites_stale_main_grad", False)
        return param in self.by_hook or (param in self.by_kernel and overwrites)

    def _note_overwritten(self, param: Parameter) -> None:
        """An overwriting kernel has been: ``main_grad`` holds this iteration's gradient."""
        if param in self.by_kernel and not getattr(param, "main_grad_is_stale", False):
            self.stale.discard(param)

    def _check_kernel(self, param: Parameter) -> None:
        """Learn from ``grad_added_to_main_grad`` that a kernel writes ``param.main_grad``."""
        if not param.grad_added_to_main_grad:
            return
        if param in self.stale:
            raise RuntimeError(
                f"defer_grad_buffer_zero: a weight-gradient kernel accumulated into the stale "
                f"main_grad of {self.names[param]}, whose gradients came through the backward "
                "hook before: this gradient is wrong. Unset defer_grad_buffer_zero, or give the "
                "parameter one kind of writer (gradient_accumulation_fusion) for the whole run."
            )
        self._learn(param, by_kernel=True)

    def _learn(self, param: Parameter, *, by_kernel: bool) -> None:
        if by_kernel and self.reported and param in self.by_hook and self.logs:
            logger.warning(
                "defer_grad_buffer_zero: %s is zeroed from now on: a kernel writes its main_grad",
                self.names[param],
            )
        (self.by_kernel if by_kernel else self.by_hook).add(param)
        if by_kernel:
            self.by_hook.discard(param)

    def _report(self) -> None:
        """Say once what is deferred, so that a partial effect does not go unseen."""
        total = sum(param.numel() for buffer in self.buffers for param in buffer.params)
        deferred = sum(param.numel() for param in self.names if self._is_overwritten(param))
        if not deferred:
            raise RuntimeError(
                "defer_grad_buffer_zero has no effect: a kernel accumulates every weight gradient "
                "into main_grad. Unset it, or unset gradient_accumulation_fusion."
            )
        self.reported = True
        if self.logs:
            logger.log(
                logging.WARNING if self.by_kernel else logging.INFO,
                "defer_grad_buffer_zero: %d of %d gradient elements are overwritten in place of "
                "the zero fill; the rest (%d parameters written by kernels, %d without a gradient "
                "so far) is zeroed in each iteration",
                deferred,
                total,
                sum(not self._is_overwritten(param) for param in self.by_kernel),
                len(self.names.keys() - self.by_hook - self.by_kernel),
            )
