# SPDX-License-Identifier: Apache-2.0
"""Section `checkpoint`: what is saved, when, and where a run starts from."""

from __future__ import annotations

from typing import Literal

from .base import Positive, Section


class Checkpoint(Section):
    """Saving and loading. Checkpoints lie in the run directory."""

    save_interval: Positive | None = None
    """Steps between checkpoints; null: only at the end and when stopped."""
    save_final: bool = True
    """Save at the end of the run and when it is stopped."""
    async_save: bool = False
    """Write in the background while training goes on."""
    optimizer_format: Literal["dp_reshardable", "fully_reshardable"] = "dp_reshardable"
    """Optimizer state that loads at another data-parallel size (fast), or at any layout."""
    keep: Positive | None = None
    """Newest checkpoints to keep; null: all."""
    auto_resume: bool = True
    """Go on from the newest verified checkpoint of the run directory."""
    load: str | None = None
    """Checkpoint of another run to start from when this one has none yet."""
    finetune: bool = False
    """Take only the weights of `load` and start at step 0."""
    no_save_optim: bool = False
    """Leave the optimizer out: such a checkpoint cannot be resumed from."""
    verify_on_load: bool = True
    """Compare every file's SHA-256 with the manifest before it is loaded."""
