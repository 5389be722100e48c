# SPDX-License-Identifier: Apache-2.0
"""Section `schedule`: how long, how much at a time, and from which random numbers."""

from __future__ import annotations

from typing import Literal

from .base import NotNegative, Positive, Section


class Schedule(Section):
    """The loop."""

    train_iters: Positive
    """Optimizer steps."""
    micro_batch_size: Positive
    """Samples of a rank in one forward pass."""
    global_batch_size: Positive
    """Samples of an optimizer step over all ranks."""
    seed: NotNegative = 1234
    """Start of every random sequence; ranks derive their own from it."""
    per_step_rng_reseed: bool = False
    """Start the device's random sequence anew at each step, so that no kernel can shift it."""
    warmup_train_steps: NotNegative = 0
    """Training steps on synthetic data before the run; every state is as before afterwards."""
    warmup_validation_steps: NotNegative = 0
    """Evaluation steps on synthetic data before the run."""
    manual_gc: bool = False
    """Collect garbage at the same step on all ranks rather than whenever Python likes."""
    manual_gc_interval: NotNegative = 0
    """Steps between collections; 0: only before evaluations."""
    manual_gc_eval: bool = True
    """Collect before and after an evaluation."""
    empty_unused_memory_level: Literal[0, 1, 2] = 0
    """Give cached GPU memory back never (0), after (1) or before and after (2) the optimizer."""
    check_for_nan_in_loss_and_grad: bool = True
    """Stop at a loss or gradient that is no finite number."""
    deterministic_mode: bool = False
    """Refuse kernels whose result depends on timing."""
    te_rng_tracker: bool = False
    """TransformerEngine's random-state tracker instead of Megatron's."""
    exit_interval: Positive | None = None
    """Save and stop at the first step divisible by it."""
    exit_duration_in_mins: Positive | None = None
    """Save and stop after this many minutes."""
