# SPDX-License-Identifier: Apache-2.0
"""Random samples for benchmarks and tests, each from a generator of its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mxflux.training.cfg_dropout import EmptyEncodings
from mxflux.training.timestep_sampling import EVALUATION_LEVELS

from .settings import SampleShape

VALIDATION_OFFSET = 2**31
"""Validation draws other numbers than training; torch's CPU generator looks at 32 bits alone."""
_EMPTY_OFFSET = 2**31 + 2**30


@dataclass(frozen=True)
class MockSamples:
    """Normal numbers from a generator started with seed + index; the same for every rank.

    Validation samples have a ``timestep``: 0..7 in turn.
    """

    shape: SampleShape
    latent_keys: tuple[str, ...]
    seed: int
    length: int | None = None
    validation: bool = False
    kind: str = "mock"

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        offset = VALIDATION_OFFSET if self.validation else 0
        own = torch.Generator().manual_seed(self.seed + offset + index)
        keys = (*self.latent_keys, "prompt_embeds", "pooled_prompt_embeds")
        sample = {key: torch.randn(self.shape.of(key), generator=own) for key in keys}
        if self.validation:
            sample["timestep"] = torch.tensor(index % EVALUATION_LEVELS)
        return sample


def mock_empty_encodings(shape: SampleShape, seed: int) -> EmptyEncodings:
    """Random stand-ins for the encodings of the empty prompt."""
    own = torch.Generator().manual_seed(seed + _EMPTY_OFFSET)
    t5 = torch.randn(1, *shape.of("prompt_embeds"), generator=own)
    return EmptyEncodings(t5, torch.randn(1, *shape.of("pooled_prompt_embeds"), generator=own))
