# SPDX-License-Identifier: Apache-2.0
"""A forward step on a model of one linear, and validation loaders that know their split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from mxflux.training.batch import LatentMode
from mxflux.training.forward_step import FluxForwardStep, StepSettings
from mxflux.training.random_state import StepCounter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor


@dataclass
class Config:
    """The fields of FluxConfig that the forward step reads."""

    tensor_model_parallel_size: int = 1
    bf16: bool = False
    fp16: bool = False
    cfg_dropout_prob: float = 0.0
    timestep_sampling_strategy: str = "direct_uniform"
    guidance_embed: bool = False
    guidance_scale: float = 3.5
    apply_rope_fusion: bool = False


class Model(torch.nn.Module):
    """A linear over the tokens, and dropout that would show in training mode."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.linear = torch.nn.Linear(4, 4)
        self.dropout = torch.nn.Dropout(0.5)
        self.calls: list[tuple[int, bool, bool]] = []
        """(batch size, training mode, gradients on) of each call."""

    def forward(self, tokens: Tensor, *_rest: Any) -> Tensor:
        self.calls.append((tokens.shape[1], self.training, torch.is_grad_enabled()))
        # As fused attention does: it advances the default generator without any dropout.
        torch.rand(1)
        return self.dropout(self.linear(tokens))


def forward_step(rank: int = 0, counter: StepCounter | None = None) -> FluxForwardStep:
    """The real step on the CPU in fp32."""
    settings = StepSettings(LatentMode("presampled"), seed=9, data_parallel_rank=rank)
    return FluxForwardStep(Config(), settings, device="cpu", counter=counter)


def samples(first: int, count: int, *, timestep: bool = True) -> dict[str, Tensor]:
    """Samples ``first`` to ``first + count`` of a split in which each depends on its index only."""
    index = torch.arange(first, first + count, dtype=torch.float32)
    latents = torch.sin(index[:, None] * torch.tensor([0.1, 0.7, 1.3, 2.9])).view(count, 1, 2, 2)
    batch = {
        "latents": latents,
        "prompt_embeds": torch.zeros(count, 1, 2),
        "pooled_prompt_embeds": torch.zeros(count, 2),
    }
    if timestep:
        batch["timestep"] = torch.arange(first, first + count) % 8
    return batch


class Split:
    """A rank's batches of a split that is cut into contiguous shares, as Energon cuts it."""

    def __init__(
        self, total: int, size: int, *, rank: int = 0, ranks: int = 1, endless: bool = False
    ) -> None:
        self.first = total * rank // ranks
        self.stop = total * (rank + 1) // ranks
        self.samples = self.stop - self.first
        self.size = size
        self.endless = endless

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        position = self.first
        while position < self.stop:
            count = min(self.size, self.stop - position)
            batch = samples(position, count)
            position += count
            if self.endless and count < self.size:
                again = samples(self.first, self.size - count)
                batch = {key: torch.cat((value, again[key])) for key, value in batch.items()}
            yield batch
        while self.endless:
            yield samples(self.first, self.size)
