# SPDX-License-Identifier: Apache-2.0
"""A data set of random numbers on disk: the reading path at full size without any picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .errors import DataError
from .mock import MockSamples, mock_empty_encodings
from .parts import PREENCODED, part_names
from .shards import new_dataset

if TYPE_CHECKING:
    from pathlib import Path

    from .settings import SampleShape


def synthesise(
    destination: Path,
    shape: SampleShape,
    *,
    samples: int,
    validation_samples: int,
    latent_keys: tuple[str, ...],
    encoding: str = PREENCODED,
    shard_size: int = 1000,
    seed: int = 0,
    dtype: torch.dtype = torch.bfloat16,
) -> dict[str, int]:
    """Write a data set; returns shard -> samples. Same arguments, same bytes.

    Raises FileExistsError when the destination exists, DataError for sizes that cannot be.
    """
    part_names(encoding, latent_keys)
    if samples < 1 or validation_samples < 0:
        raise DataError(
            f"samples={samples} must be positive, validation samples={validation_samples} "
            "not negative"
        )
    if shape.height % 2 or shape.width % 2:
        raise DataError(f"latent size {shape.height}x{shape.width} must be even: 2x2 patches")
    description = {"encoder": {"name": "random", "seed": seed}, "latents": list(latent_keys)}
    with new_dataset(
        destination,
        empty=mock_empty_encodings(shape, seed),
        description=description,
        encoding=encoding,
        shard_size=shard_size,
    ) as writer:
        for split, count in (("train", samples), ("val", validation_samples)):
            source = MockSamples(shape, latent_keys, seed, count, validation=split == "val")
            for index in range(count):
                sample = source[index]
                step = sample.pop("timestep", None)
                sidecar = {} if step is None else {"timestep": int(step)}
                tensors = {key: value.to(dtype) for key, value in sample.items()}
                writer.add(split, f"{split}{index:08d}", tensors, sidecar)
    return writer.counts
