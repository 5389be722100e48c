# SPDX-License-Identifier: Apache-2.0
"""The two halves of an encoder, whoever does the work: pictures and captions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from mxflux.data.errors import DataError

from .blocks import BlockTransform
from .words import HashedWords

if TYPE_CHECKING:
    from collections.abc import Mapping

CERTAIN = -30.0
"""Log-variance of latents without any spread."""


class PictureCodec(Protocol):
    """Pictures [B,3,H,W] fp32 in [-1,1] to latents [B,C,H/8,W/8] and back."""

    def encode(self, pictures: Tensor, latent_keys: tuple[str, ...]) -> dict[str, Tensor]:
        """``latents``, ready for training, or ``mean`` and ``logvar`` of the raw latents."""
        ...

    def decode(self, latents: Tensor) -> Tensor:
        """Pictures of what ``encode`` calls latents; not clamped."""
        ...

    def describe(self) -> dict[str, Any]:
        """What :func:`codec_from` needs to build it again."""
        ...


class TextEncoder(Protocol):
    """Captions to embeddings."""

    def encode(self, caption: str) -> tuple[Tensor, Tensor]:
        """Prompt embeddings [S,context_dim] and pooled embedding [vec_in_dim]."""
        ...


@dataclass(frozen=True)
class BlockCodec:
    """The built-in block transform as a codec; its raw latents need no scale and no shift."""

    transform: BlockTransform

    def encode(self, pictures: Tensor, latent_keys: tuple[str, ...]) -> dict[str, Tensor]:
        """Latents, or them as a mean without spread."""
        if self.transform.planes == 1:
            pictures = pictures.mean(1, keepdim=True)
        latents = self.transform.encode(pictures)
        if latent_keys == ("latents",):
            return {"latents": latents}
        return {"mean": latents, "logvar": torch.full_like(latents, CERTAIN)}

    def decode(self, latents: Tensor) -> Tensor:
        """RGB pictures, grey ones too."""
        return self.transform.decode(latents).expand(-1, 3, -1, -1)

    def describe(self) -> dict[str, Any]:
        """Name, channels and colour."""
        return {
            "name": "builtin",
            "channels": self.transform.channels,
            "colour": self.transform.colour,
        }


def codec_from(description: Mapping[str, Any], *, vae: str | None = None) -> PictureCodec:
    """The codec that a data set's description names; ``vae`` is a folder that overrides it.

    Raises DataError when the description names none, or a model that cannot be loaded.
    """
    encoder = description.get("encoder") or {}
    if vae is not None:
        from .pretrained import AutoencoderCodec

        return AutoencoderCodec(vae)
    if encoder.get("name") == "builtin":
        return BlockCodec(BlockTransform(encoder["channels"], encoder["colour"]))
    if encoder.get("name") == "diffusers":
        from .pretrained import AutoencoderCodec

        return AutoencoderCodec(encoder["vae"])
    made = encoder.get("name") or "something that left no description"
    raise DataError(
        f"the data were made by {made}: which decoder makes pictures of their latents is not "
        "known; give the folder of an AutoencoderKL with --vae"
    )


def text_encoder_from(
    description: Mapping[str, Any],
    sizes: tuple[int, int, int],
    *,
    clip: str | None = None,
    t5: str | None = None,
) -> TextEncoder:
    """The text encoder of a data set; ``sizes``: text length, context_dim, vec_in_dim.

    Raises DataError when it is not known or a folder is missing.
    """
    encoder = description.get("encoder") or {}
    if (clip is None) != (t5 is None):
        raise DataError("give both --clip and --t5, or neither")
    if clip is None and encoder.get("name") == "diffusers":
        clip, t5 = encoder["clip"], encoder["t5"]
    if clip is not None and t5 is not None:
        from .pretrained import ClipAndT5

        return ClipAndT5(clip, t5, sizes[0])
    if encoder.get("name") == "builtin":
        return HashedWords(*sizes)
    raise DataError(
        "which text encoders made the data is not known: give the folders of a CLIP text model "
        "and a T5 encoder with --clip and --t5"
    )
