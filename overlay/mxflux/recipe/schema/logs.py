# SPDX-License-Identifier: Apache-2.0
"""Sections `logging`, `mlperf` and `probes`: what a run writes down about itself."""

from __future__ import annotations

from typing import Literal

from .base import NotNegative, Positive, PositiveNumber, Section


class Logging(Section):
    """metrics.jsonl is always written; the others come on top."""

    interval: Positive = 1
    """Steps between training lines."""
    tensorboard: bool = False
    """Write TensorBoard events into the run directory."""
    wandb_project: str | None = None
    """Weights & Biases project; null: none."""
    wandb_entity: str | None = None
    """Weights & Biases team or user."""
    wandb_mode: Literal["online", "offline"] = "offline"
    """Send at once, or leave files to send later."""
    peak_tflops_per_gpu: PositiveNumber | None = None
    """TFLOP/s that the share of peak refers to; null: the device's dense BF16 peak."""


class MLPerf(Section):
    """MLPerf Training log of the benchmark flux1."""

    enable: bool = False
    """Write the log, and stop when the target is reached."""
    ruleset: Literal["6.0.0", "6.1.0"] = "6.1.0"
    """Rules that the log is written for."""
    target_val_loss: PositiveNumber = 0.586
    """Validation loss at which the run has succeeded."""
    log_interval: Positive = 10
    """Steps between throughput lines."""
    train_samples: Positive | None = None
    """Samples of the training set, as the log states them."""
    eval_samples: Positive | None = None
    """Samples of the validation set, as the log states them; null: those of an evaluation."""
    submission_org: str | None = None
    """Submitter."""
    submission_platform: str | None = None
    """System, as in the submission."""
    submission_division: Literal["closed", "open"] = "closed"
    """Division."""
    submission_status: Literal["onprem", "cloud", "research", "preview"] = "onprem"
    """Availability of the system."""


class Probes(Section):
    """Measurements that cost time; none changes a number, all are off by default."""

    train_profile: bool = False
    """Trace training steps with torch.profiler."""
    profile_step_start: Positive = 10
    """First step that is traced."""
    profile_step_end: Positive = 12
    """Step at which the trace ends; not traced itself."""
    profile_rank: NotNegative = 0
    """Rank that traces."""
    evaluation_profile: bool = False
    """Trace the first evaluation with torch.profiler."""
    evaluation_iteration_timing: bool = False
    """Measure the period of evaluation steps from device events, without a synchronisation."""
    batch_fetch_timing: bool = False
    """Measure the time that the loop waits for its next batch."""
