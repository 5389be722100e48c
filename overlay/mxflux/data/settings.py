# SPDX-License-Identifier: Apache-2.0
"""What a loader needs to know, as plain values, and what it may be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mxflux.training.batch import LATENT_KEYS

from .errors import DataError

if TYPE_CHECKING:
    from mxflux.flux.architecture import FluxArchitecture

KINDS = ("energon", "mock", "digits")
LATENT_FACTOR = 8
"""Pixels on a side of a picture for each latent."""


@dataclass(frozen=True)
class SampleShape:
    """Sizes of one sample: latents [channels, height, width], prompt [text_length, context_dim],
    pooled [vec_in_dim]."""

    channels: int
    height: int
    width: int
    text_length: int
    context_dim: int
    vec_in_dim: int

    def of(self, key: str) -> tuple[int, ...]:
        """Shape of one sample's tensor."""
        if key == "prompt_embeds":
            return (self.text_length, self.context_dim)
        if key == "pooled_prompt_embeds":
            return (self.vec_in_dim,)
        return (self.channels, self.height, self.width)


@dataclass(frozen=True)
class DataSettings:
    """The data of a run; names are those of the recipe's keys.

    Raises DataError naming the key and its value when it cannot be served.
    """

    kind: str
    micro_batch_size: int
    seed: int
    path: str | None = None
    eval_micro_batch_size: int | None = None
    """None: micro_batch_size."""
    num_workers: int = 2
    """Loader processes in training (kind energon; the others are computed in place)."""
    val_num_workers: int = 1
    """Loader processes in validation; 0 and 1 read the same samples in the same order."""
    prefetch_factor: int = 2
    max_samples_per_sequence: int | None = 100
    shuffle_buffer_size: int | None = None
    vae_latent_mode: str = "presampled"
    image_size: int = 256
    text_length: int = 256
    latent_channels: int = 16
    context_dim: int = 4096
    vec_in_dim: int = 768
    mock_samples: int | None = None
    """Length of the mock data before they repeat; None: endless."""
    endless_validation: bool = False
    """Start validation anew where it ends (evaluation.remainder: mask reads on past its share)."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise DataError(f"data.kind={self.kind!r} is unknown. Choose from: {', '.join(KINDS)}.")
        if self.vae_latent_mode not in LATENT_KEYS:
            raise DataError(
                f"data.vae_latent_mode={self.vae_latent_mode!r} is unknown. "
                f"Choose from: {', '.join(LATENT_KEYS)}."
            )
        for name in ("micro_batch_size", "prefetch_factor", "image_size", "text_length",
                     "latent_channels", "context_dim", "vec_in_dim"):  # fmt: skip
            if getattr(self, name) < 1:
                raise DataError(f"data: {name}={getattr(self, name)} must be positive")
        if self.image_size % (2 * LATENT_FACTOR):
            raise DataError(
                f"data.image_size={self.image_size} must be a multiple of {2 * LATENT_FACTOR}: "
                "a token is a 2x2 patch of latents, each of 8x8 pixels"
            )

    @property
    def latent_keys(self) -> tuple[str, ...]:
        """Keys of a batch that hold the latents."""
        return LATENT_KEYS[self.vae_latent_mode]

    @property
    def shape(self) -> SampleShape:
        """Sizes of one sample."""
        side = self.image_size // LATENT_FACTOR
        return SampleShape(
            self.latent_channels, side, side, self.text_length, self.context_dim, self.vec_in_dim
        )

    def batch_size(self, training: bool) -> int:
        """Samples in a micro-batch."""
        if training or self.eval_micro_batch_size is None:
            return self.micro_batch_size
        return self.eval_micro_batch_size


def settings_of(recipe: Any, architecture: FluxArchitecture) -> DataSettings:
    """The settings that a recipe asks for, with the sizes that its model needs."""
    data, evaluation = recipe.data, recipe.evaluation
    same = (
        "kind", "path", "num_workers", "val_num_workers", "prefetch_factor",
        "max_samples_per_sequence", "shuffle_buffer_size", "vae_latent_mode", "image_size",
        "text_length", "mock_samples",
    )  # fmt: skip
    return DataSettings(
        **{name: getattr(data, name) for name in same},
        micro_batch_size=recipe.schedule.micro_batch_size,
        eval_micro_batch_size=evaluation.micro_batch_size,
        seed=recipe.schedule.seed,
        latent_channels=architecture.in_channels // 4,
        context_dim=architecture.context_dim,
        vec_in_dim=architecture.vec_in_dim,
        endless_validation=evaluation.remainder == "mask",
    )
