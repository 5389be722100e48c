# SPDX-License-Identifier: Apache-2.0
"""From a folder of pictures and captions to a pre-encoded Energon data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from mxflux.training.cfg_dropout import EmptyEncodings
from mxflux.training.timestep_sampling import EVALUATION_LEVELS

from .errors import DataError
from .pictures import Captioned, square
from .settings import LATENT_FACTOR
from .shards import new_dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from torch import Tensor

    from .encoders.codec import PictureCodec, TextEncoder
    from .shards import DatasetWriter


@dataclass(frozen=True)
class Encoding:
    """How pictures become samples. Raises DataError naming the value that cannot be."""

    codec: PictureCodec
    text: TextEncoder
    description: dict[str, Any]
    latent_keys: tuple[str, ...] = ("latents",)
    image_size: int = 256
    validation: int = 0
    """Pictures kept apart for validation, evenly spread; each gets a timestep, 0..7 in turn."""
    shard_size: int = 1000
    dtype: torch.dtype = torch.bfloat16
    batch: int = 8
    """Pictures encoded together."""

    def __post_init__(self) -> None:
        if self.image_size < 1 or self.image_size % (2 * LATENT_FACTOR):
            raise DataError(
                f"image size {self.image_size} must be a positive multiple of {2 * LATENT_FACTOR}"
            )
        if self.batch < 1:
            raise DataError(f"batch {self.batch} must be positive")


def encode_pictures(
    pictures: Sequence[Captioned],
    destination: Path,
    encoding: Encoding,
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, int]:
    """Write the data set, whole or not at all; returns shard -> samples.

    Raises FileExistsError when the destination exists, DataError naming a picture that cannot be
    read or numbers that do not fit.
    """
    validation = validation_positions(len(pictures), encoding.validation)
    prompt, pooled = encoding.text.encode("")
    with new_dataset(
        destination,
        empty=EmptyEncodings(prompt[None], pooled[None]),
        description=encoding.description,
        shard_size=encoding.shard_size,
    ) as writer:
        for index, sample in enumerate(_samples(pictures, encoding)):
            _write(writer, index, pictures[index], sample, validation.get(index), encoding.dtype)
            progress(index + 1)
    return writer.counts


def validation_positions(total: int, validation: int) -> dict[int, int]:
    """Index of a picture kept for validation -> its place among them.

    Raises DataError unless some are left for training.
    """
    if not 0 <= validation < total:
        raise DataError(
            f"{validation} validation picture(s) of {total}: there must be some for training"
        )
    return {place * total // validation: place for place in range(validation)}


def _samples(pictures: Sequence[Captioned], encoding: Encoding) -> Iterator[dict[str, Tensor]]:
    for start in range(0, len(pictures), encoding.batch):
        part = pictures[start : start + encoding.batch]
        stacked = torch.stack([square(item.path, encoding.image_size) for item in part])
        latents = encoding.codec.encode(stacked, encoding.latent_keys)
        for row, item in enumerate(part):
            prompt, pooled = encoding.text.encode(item.caption)
            sample = {key: value[row] for key, value in latents.items()}
            yield {**sample, "prompt_embeds": prompt, "pooled_prompt_embeds": pooled}


def _write(
    writer: DatasetWriter,
    index: int,
    picture: Captioned,
    sample: dict[str, Tensor],
    place: int | None,
    dtype: torch.dtype,
) -> None:
    sidecar: dict[str, Any] = {"caption": picture.caption, "file": picture.name}
    if place is not None:
        sidecar["timestep"] = place % EVALUATION_LEVELS
    for key, value in sample.items():
        if not torch.isfinite(value).all():
            raise DataError(f"{picture.path}: {key} has values that are not finite")
    tensors = {key: value.to(dtype) for key, value in sample.items()}
    writer.add("train" if place is None else "val", f"{index:08d}", tensors, sidecar)
