# SPDX-License-Identifier: Apache-2.0
"""One optimizer step through Megatron's schedule, and what all ranks then agree on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from megatron.core import parallel_state
from megatron.core.pipeline_parallel import get_forward_backward_func

from .errors import NonFiniteError, TrainingError
from .packed_weights import pack_weights_anew

if TYPE_CHECKING:
    from .build import Built
    from .forward_step import FluxForwardStep
    from .process import Process

Batches = Iterator[Mapping[str, Any]]


@dataclass(frozen=True)
class StepResult:
    """A step's outcome, equal on all ranks but for ``own_loss``."""

    loss: float
    """Mean over ranks and micro-batches."""
    own_loss: float
    grad_norm: float | None
    """Before clipping; None where it is neither clipped nor checked."""
    learning_rate: float
    """The one that this step was made with."""
    stop: bool
    """Whether any rank was asked to stop."""


@dataclass
class TrainStep:
    """Runs optimizer steps of one rank."""

    built: Built
    forward_step: FluxForwardStep
    process: Process
    num_microbatches: int
    micro_batch_size: int
    check_for_nan: bool
    empty_unused_memory_level: int = 0

    def __call__(self, batches: Batches, step: int, *, stop_requested: bool = False) -> StepResult:
        """Step number ``step`` (from 1) on the next micro-batches.

        Raises NonFiniteError on every rank when ``check_for_nan`` and a loss or the gradient norm
        is no finite number; parameters have changed by then, so nothing may be saved.
        """
        learning_rate = _learning_rate(self.built.optimizer)
        own_loss = self._forward_backward(batches)
        grad_norm = self._update(step)
        losses, stop = self._exchange(own_loss, stop_requested)
        if self.check_for_nan:
            require_finite(step, losses, grad_norm)
        return StepResult(math.fsum(losses) / len(losses), own_loss, grad_norm, learning_rate, stop)

    @property
    def samples(self) -> int:
        """Samples of a step over all data-parallel ranks."""
        ranks = int(parallel_state.get_data_parallel_world_size())
        return self.num_microbatches * self.micro_batch_size * ranks

    def _forward_backward(self, batches: Batches) -> float:
        """This rank's mean loss."""
        self.built.ddp.train()
        self.built.ddp.zero_grad_buffer()
        self.built.optimizer.zero_grad()
        pack_weights_anew(self.built.ddp)
        reported = get_forward_backward_func()(
            forward_step_func=self.forward_step,
            data_iterator=batches,
            model=[self.built.ddp],
            num_microbatches=self.num_microbatches,
            seq_length=0,  # Megatron sizes pipeline messages with these; there are none
            micro_batch_size=self.micro_batch_size,
            forward_only=False,
        )
        losses = torch.stack([part["loss"].float() for part in reported])
        return float(losses.mean())

    def _update(self, step: int) -> float | None:
        if self.empty_unused_memory_level >= 1:
            torch.cuda.empty_cache()
        updated, grad_norm, _ = self.built.optimizer.step()
        if not updated:
            raise TrainingError(f"step {step}: the optimizer skipped its update")
        self.built.scheduler.step(increment=self.samples)
        if self.empty_unused_memory_level >= 2:
            torch.cuda.empty_cache()
        return None if grad_norm is None else float(grad_norm)

    def _exchange(self, own_loss: float, stop_requested: bool) -> tuple[list[float], bool]:
        """Every rank's loss, and whether one of them was asked to stop: one small collective."""
        mine = torch.tensor(
            [own_loss, float(stop_requested)], dtype=torch.float64, device=self.process.device
        )
        group = parallel_state.get_data_parallel_group()
        if self.process.fake or group.size() == 1:
            return [own_loss], stop_requested
        rows = [torch.empty_like(mine) for _ in range(group.size())]
        torch.distributed.all_gather(rows, mine, group=group)
        table = torch.stack(rows).cpu()
        return table[:, 0].tolist(), bool(table[:, 1].any())


def require_finite(step: int, losses: list[float], grad_norm: float | None) -> None:
    """Raise NonFiniteError naming the step and the ranks whose loss is no finite number."""
    ranks = [rank for rank, loss in enumerate(losses) if not math.isfinite(loss)]
    if ranks:
        values = ", ".join(f"rank {rank}: {losses[rank]}" for rank in ranks)
        raise NonFiniteError(
            f"step {step}: the loss is not finite on {len(ranks)} of {len(losses)} ranks "
            f"({values}). Nothing was saved; resume goes on from the last checkpoint"
        )
    if grad_norm is not None and not math.isfinite(grad_norm):
        raise NonFiniteError(
            f"step {step}: the gradient norm is {grad_norm}, while the loss is finite on all "
            f"{len(losses)} ranks. Nothing was saved; resume goes on from the last checkpoint"
        )


def _learning_rate(optimizer: Any) -> float:
    """Of the first group with the schedule's own rate."""
    return float(next(group["lr"] for group in optimizer.param_groups if "lr" in group))
