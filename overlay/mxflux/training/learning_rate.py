# SPDX-License-Identifier: Apache-2.0
"""Megatron's learning-rate schedule, and its variant whose warm-up starts above zero."""

from __future__ import annotations

from typing import Any

from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler


class AlignedWarmupScheduler(OptimizerParamScheduler):  # type: ignore[misc]
    """Warm-up as NeMo counts it: the first step already has one batch behind it.

    While num_steps (samples seen) is at most the warm-up's length,
    lr = init + (max - init) * (num_steps + batch) / (warm-up + batch).
    """

    def __init__(self, optimizer: Any, *, global_batch_size: int, **schedule: Any) -> None:
        self.global_batch_size = global_batch_size  # the base class asks for the first rate
        super().__init__(optimizer, **schedule)

    def get_lr(self, param_group: dict[str, Any]) -> float:
        """Learning rate of a parameter group at the current step."""
        warmup = self.lr_warmup_steps
        if not (warmup > 0 and self.num_steps <= warmup):
            return float(super().get_lr(param_group))
        highest = param_group.get("max_lr", self.max_lr)
        done = (self.num_steps + self.global_batch_size) / (warmup + self.global_batch_size)
        return float(self.init_lr + (highest - self.init_lr) * done)
