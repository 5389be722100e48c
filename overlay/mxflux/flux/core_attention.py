# SPDX-License-Identifier: Apache-2.0
"""Core attention of the local spec on torch's scaled_dot_product_attention."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from megatron.core.tensor_parallel import get_cuda_rng_tracker
from megatron.core.transformer.enums import AttnBackend, AttnMaskType
from megatron.core.transformer.module import MegatronModule
from torch.nn.attention import SDPBackend, sdpa_kernel

if TYPE_CHECKING:
    from torch import Tensor

    from .config import FluxConfig


class ScaledDotProductAttention(MegatronModule):
    """Attention without a mask: q, k, v [S,B,heads,D] -> [S,B,heads*D].

    ``attention_backend`` auto leaves the choice of kernel to torch, flash insists on flash.
    """

    def __init__(self, config: FluxConfig, layer_number: int, **_: Any) -> None:
        super().__init__(config=config)
        self.layer_number = layer_number
        self.only_flash = config.attention_backend is AttnBackend.flash
        self.dropout = config.attention_dropout

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: None,
        attn_mask_type: AttnMaskType = AttnMaskType.no_mask,
    ) -> Tensor:
        """Attend to every token; raises ValueError for any mask."""
        if attention_mask is not None or attn_mask_type is not AttnMaskType.no_mask:
            raise ValueError(f"Flux attends without a mask, got one or {attn_mask_type}")
        dropout = self.dropout if self.training else 0.0
        q, k, v = (x.permute(1, 2, 0, 3) for x in (query, key, value))
        with self._kernel(), get_cuda_rng_tracker().fork() if dropout else nullcontext():
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        # [B,heads,S,D] -> [S,B,heads*D]
        return out.permute(2, 0, 1, 3).flatten(2)

    def _kernel(self) -> AbstractContextManager[Any]:
        if self.only_flash:
            return sdpa_kernel(SDPBackend.FLASH_ATTENTION)
        return nullcontext()
