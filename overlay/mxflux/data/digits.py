# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's handwritten digits as a tiny text-to-image data set: real, no download."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mxflux.training.timestep_sampling import EVALUATION_LEVELS

from .encoders.blocks import BlockTransform
from .encoders.words import HashedWords, tokens
from .errors import DataError
from .settings import DataSettings

SIDE = 8
"""Pixels on a side of the stored pictures."""
LEVELS = 16
VALIDATION_EVERY, VALIDATION_SAMPLES = 8, 224
"""Every eighth picture, the first 224 of them: a multiple of 32, and 28 for each noise level."""


def caption(digit: int) -> str:
    """The prompt of a digit."""
    return f"digit {digit}"


def digit_encoders(settings: DataSettings) -> tuple[BlockTransform, HashedWords]:
    """The encoders of pictures and captions.

    Raises DataError for stored mean and logvar, which no picture here has, and when the text is
    too short for a caption.
    """
    if settings.vae_latent_mode != "presampled":
        raise DataError(
            f"data.vae_latent_mode={settings.vae_latent_mode!r}: data.kind=digits has latents, "
            "not mean and logvar; set presampled"
        )
    needed = len(tokens(caption(0))) + 1
    if settings.text_length < needed:
        raise DataError(
            f"data.text_length={settings.text_length}: the captions of data.kind=digits have "
            f"{needed} tokens, the digit would be cut off"
        )
    if settings.image_size % SIDE:
        raise DataError(f"data.image_size={settings.image_size} must be a multiple of {SIDE}")
    return (
        BlockTransform(settings.latent_channels, "gray"),
        HashedWords(settings.text_length, settings.context_dim, settings.vec_in_dim),
    )


class DigitSamples:
    """The encoded digits of one split, held in memory (1,573 for training, 224 for validation).

    Raises DataError when scikit-learn is missing.
    """

    kind = "digits"

    def __init__(self, settings: DataSettings, *, validation: bool) -> None:
        pictures, labels = load_digits()
        blocks, words = digit_encoders(settings)
        rows = np.flatnonzero(validation_mask(len(labels)) == validation)
        self.length = len(rows)
        self.validation = validation
        self.labels = [int(label) for label in labels[rows]]
        self._latents = blocks.encode(enlarge(pictures[rows], settings.image_size))
        self._texts = [words.encode(caption(digit)) for digit in range(10)]

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        prompt, pooled = self._texts[self.labels[index]]
        sample = {
            "latents": self._latents[index],
            "prompt_embeds": prompt,
            "pooled_prompt_embeds": pooled,
        }
        if self.validation:
            sample["timestep"] = torch.tensor(index % EVALUATION_LEVELS)
        return sample


def load_digits() -> tuple[Tensor, np.ndarray]:
    """Pictures [1797,1,8,8] fp32 in [-1,1], white on black, and their labels [1797]."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise DataError(
            "data.kind=digits needs scikit-learn, which ships the pictures: "
            "pip install scikit-learn"
        ) from error
    bunch = datasets.load_digits()
    pictures = torch.from_numpy(bunch.images.astype(np.float32))[:, None]
    return pictures * 2 / LEVELS - 1, np.asarray(bunch.target)


def validation_mask(count: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which pictures are for validation; fixed, so that no run ever trains on them."""
    mask: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.arange(count) % VALIDATION_EVERY == 0
    mask[np.flatnonzero(mask)[VALIDATION_SAMPLES:]] = False
    return mask


def enlarge(pictures: Tensor, side: int) -> Tensor:
    """Pictures [B,1,side,side], bicubic and clamped to [-1,1]."""
    larger = torch.nn.functional.interpolate(pictures, size=(side, side), mode="bicubic")
    return larger.clamp(-1, 1)
