# SPDX-License-Identifier: Apache-2.0
"""AdaLN: shift, scale and gate from the conditioning vector, never quantized."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from .embeddings import PlainLinear

if TYPE_CHECKING:
    import torch


class AdaLNModulation(nn.Module):
    """SiLU and one linear from the conditioning vector [B,H] to ``chunks`` tensors [B,H].

    Order of the chunks: shift, scale, gate (single block), twice over (joint block: attention,
    then MLP). ``norm_out`` alone has two chunks, scale first.
    """

    def __init__(
        self, hidden_size: int, chunks: int, *, dtype: torch.dtype, device: torch.device | None
    ) -> None:
        super().__init__()
        self.chunks = chunks
        linear = PlainLinear(hidden_size, chunks * hidden_size, dtype=dtype, device=device)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), linear)

    def forward(self, conditioning: Tensor) -> tuple[Tensor, ...]:
        """Chunks of the modulation, each [B,H]."""
        return tuple(self.adaLN_modulation(conditioning).chunk(self.chunks, dim=-1))


class AdaLNContinuous(AdaLNModulation):
    """Scale and shift in front of the output head.

    The chunks are (scale, shift), as in diffusers; BFL's ``final_layer`` stores (shift, scale).
    """

    def __init__(
        self, hidden_size: int, *, dtype: torch.dtype, device: torch.device | None
    ) -> None:
        super().__init__(hidden_size, 2, dtype=dtype, device=device)
