# SPDX-License-Identifier: Apache-2.0
"""A pre-encoded batch: its keys, its checks, its way to the device, its latents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

LATENT_KEYS = {"presampled": ("latents",), "resample": ("mean", "logvar")}
TEXT_KEYS = ("prompt_embeds", "pooled_prompt_embeds")


@dataclass(frozen=True)
class LatentMode:
    """How latents come about: stored ("presampled"), or drawn from mean and logvar ("resample").

    In "resample" the result is vae_scale * (mean + exp(logvar/2) * eps - vae_shift); scale and
    shift act in no other mode. Raises ValueError for an unknown mode, for "resample" without
    both numbers, and for "presampled" with either.
    """

    mode: str
    vae_scale: float | None = None
    vae_shift: float | None = None

    def __post_init__(self) -> None:
        if self.mode not in LATENT_KEYS:
            raise ValueError(
                f"vae_latent_mode={self.mode!r} is unknown. Choose from: {', '.join(LATENT_KEYS)}."
            )
        for name in ("vae_scale", "vae_shift"):
            value = getattr(self, name)
            if (value is None) == (self.mode == "resample"):
                needed = "needs it" if self.mode == "resample" else "has no use for it"
                raise ValueError(f"{name}={value!r}: vae_latent_mode={self.mode!r} {needed}")

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of a batch that hold the latents."""
        return LATENT_KEYS[self.mode]

    def latents(self, batch: Mapping[str, Tensor], generator: torch.Generator) -> Tensor:
        """Latents [B,C,H,W]; "resample" draws its eps from ``generator``."""
        if self.mode == "presampled":
            return batch["latents"]
        mean, logvar = batch["mean"], batch["logvar"]
        eps = draw_like(mean, generator)
        assert self.vae_scale is not None
        assert self.vae_shift is not None
        return self.vae_scale * (mean + torch.exp(0.5 * logvar) * eps - self.vae_shift)


def draw_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers in the shape, dtype and on the device of ``tensor``."""
    return torch.randn(tensor.shape, dtype=tensor.dtype, device=tensor.device, generator=generator)


def move_batch(
    batch: Mapping[str, Any], mode: LatentMode, dtype: torch.dtype, device: torch.device
) -> dict[str, Tensor]:
    """Check a batch and move it: floats in ``dtype``, ``timestep`` as stored.

    Raises KeyError naming the missing keys, ValueError naming a tensor whose shape does not fit.
    """
    needed = (*mode.keys, *TEXT_KEYS)
    missing = [key for key in needed if key not in batch]
    if missing:
        raise KeyError(
            f"the batch lacks {', '.join(missing)} (vae_latent_mode={mode.mode!r}); "
            f"it has {', '.join(sorted(batch))}"
        )
    size = batch[needed[0]].shape[0]
    ranks = dict.fromkeys(mode.keys, 4) | {"prompt_embeds": 3, "pooled_prompt_embeds": 2}
    for key in needed:
        shape = tuple(batch[key].shape)
        if len(shape) != ranks[key] or shape[0] != size:
            raise ValueError(f"{key} has shape {shape}: expected {ranks[key]} axes, batch {size}")
    moved = {key: batch[key].to(device, dtype, non_blocking=True) for key in needed}
    if "timestep" in batch:
        moved["timestep"] = batch["timestep"].to(device, non_blocking=True)
    return moved
