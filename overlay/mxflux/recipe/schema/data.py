# SPDX-License-Identifier: Apache-2.0
"""Section `data`: pre-encoded pictures and prompts."""

from __future__ import annotations

from typing import Literal

from .base import NotNegative, Positive, PositiveNumber, Section


class Data(Section):
    """What is read, and how."""

    kind: Literal["energon", "mock", "digits"]
    """Pre-encoded Energon data set, random numbers, or scikit-learn's handwritten digits."""
    path: str | None = None
    """Folder of the Energon data set."""
    num_workers: NotNegative = 2
    """Loader processes of a rank in training; Energon's data only."""
    val_num_workers: NotNegative = 1
    """Loader processes of a rank in evaluation; Energon's data only. 0 and 1 read the same samples,
    more may not."""
    prefetch_factor: Positive = 2
    """Batches that a worker holds ready; Energon's data only."""
    max_samples_per_sequence: Positive | None = 100
    """Samples that Energon reads in a row from one shard; null: the whole shard."""
    shuffle_buffer_size: Positive | None = None
    """Samples among which Energon shuffles; null: none."""
    vae_latent_mode: Literal["presampled", "resample"] = "presampled"
    """Latents as stored, or drawn anew from mean and logvar for every step."""
    vae_scale: PositiveNumber | None = None
    """Factor on resampled latents (0.3611 for Flux.1)."""
    vae_shift: float | None = None
    """Subtracted from resampled latents before the factor (0.1159 for Flux.1)."""
    image_size: Positive = 256
    """Side of the pictures in pixels; latents have an eighth of it."""
    text_length: Positive = 256
    """T5 tokens of a prompt: 256 for schnell, 512 for dev."""
    empty_encodings_path: str | None = None
    """Folder with t5_empty.npy and clip_empty.npy; null: beside the data."""
    mock_samples: Positive | None = None
    """Length of the random data set before it repeats; null: endless."""
