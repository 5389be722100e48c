# SPDX-License-Identifier: Apache-2.0
"""Section `evaluation`: how often the validation loss is measured, and on what."""

from __future__ import annotations

from typing import Literal

from .base import Positive, Section


class Evaluation(Section):
    """Off without an interval."""

    interval: Positive | None = None
    """Steps between evaluations; null: never."""
    iters: Positive | None = None
    """Global evaluation batches; give this or samples."""
    samples: Positive | None = None
    """Samples of an evaluation over all ranks; give this or iters."""
    micro_batch_size: Positive | None = None
    """Samples of a rank in one forward pass; null: as in training."""
    global_batch_size: Positive | None = None
    """Samples of one evaluation batch over all ranks; null: as in training."""
    remainder: Literal["refuse", "pad", "mask"] = "refuse"
    """What to do when the samples do not divide: refuse, or pad or mask the last batch exactly."""
    timestep_source: Literal["equidistant", "dataset"] = "equidistant"
    """Noise levels by position in the batch, or only those stored with the samples."""
    prefetch: bool = True
    """Read the first batch of the next evaluation in the background."""
    at_start: bool = False
    """Evaluate once before the first step."""
    at_end: bool = True
    """Evaluate once after the last step."""
