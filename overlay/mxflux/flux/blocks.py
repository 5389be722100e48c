# SPDX-License-Identifier: Apache-2.0
"""The two kinds of transformer block: joint (two streams) and single (one stream)."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.transformer_layer import BaseTransformerLayer

from .attention import AttentionSubmodules, FluxSingleAttention, JointSelfAttention
from .fused import resolve_ops
from .modulation import AdaLNModulation
from .norms import gated_residual
from .placement import parameter_device

if TYPE_CHECKING:
    from torch import Tensor

    from .config import FluxConfig
    from .rope import RotaryTable


@dataclass
class BlockSubmodules:
    """What a block is built from."""

    attention: AttentionSubmodules
    mlp: MLPSubmodules


class FluxBlock(MegatronModule, BaseTransformerLayer):
    """Common base: config, global layer number, operations behind the fusion gates."""

    def __init__(
        self,
        config: FluxConfig,
        submodules: BlockSubmodules,
        layer_number: int = 1,
        pg_collection: ProcessGroupCollection | None = None,
        **_: Any,
    ) -> None:
        super().__init__(config=config)
        self.submodules = submodules
        # Without pipeline stages the local number is the global one, which keys need.
        self.layer_number = layer_number
        self.ops = resolve_ops(config)
        self.pg_collection = pg_collection or ProcessGroupCollection.use_mpu_process_groups()
        self.eps = config.layernorm_epsilon

    def _modulation(self, chunks: int) -> AdaLNModulation:
        return AdaLNModulation(
            self.config.hidden_size,
            chunks,
            dtype=self.config.params_dtype,
            device=parameter_device(self.config),
        )

    def _attention(self, kind: type[Any]) -> Any:
        return kind(
            self.config, self.submodules.attention, self.layer_number, self.ops, self.pg_collection
        )

    def _mlp(self, *, bias: bool = True) -> MLP:
        config = self.config
        if not bias:
            config = copy.copy(config)
            config.add_bias_linear = False
        return MLP(
            config,
            self.submodules.mlp,
            ffn_hidden_size=config.ffn_hidden_size,
            tp_group=self.pg_collection.tp,
        )

    def _run_mlp(self, mlp: MLP, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Output of an MLP and its second bias, not yet added."""
        if self.ops.mlp is not None:
            return self.ops.mlp(mlp, x)
        out, bias = mlp(x)
        return out, bias


class JointBlock(FluxBlock):
    """MMDiT block: joint attention, then one MLP a stream (arXiv 2403.03206, figure 2b)."""

    def __init__(self, config: FluxConfig, submodules: BlockSubmodules, **kwargs: Any) -> None:
        super().__init__(config, submodules, **kwargs)
        self.adaln = self._modulation(6)
        self.adaln_context = self._modulation(6)
        self.self_attention: JointSelfAttention = self._attention(JointSelfAttention)
        self.mlp = self._mlp()
        self.context_mlp = self._mlp()

    def forward(
        self, hidden_states: Tensor, context: Tensor, conditioning: Tensor, table: RotaryTable
    ) -> tuple[Tensor, Tensor]:
        """New image [S_img,B,H] and text [S_txt,B,H] streams; conditioning [B,H]."""
        image_mod, text_mod = self.adaln(conditioning), self.adaln_context(conditioning)
        image_out, text_out = self.self_attention(
            self.ops.ln_modulate(hidden_states, *image_mod[:2], self.eps),
            self.ops.ln_modulate(context, *text_mod[:2], self.eps),
            table,
        )
        hidden_states = gated_residual(hidden_states, image_mod[2], image_out)
        context = gated_residual(context, text_mod[2], text_out)
        return (
            self._feed_forward(self.mlp, hidden_states, *image_mod[3:]),
            self._feed_forward(self.context_mlp, context, *text_mod[3:]),
        )

    def _feed_forward(
        self, mlp: MLP, x: Tensor, shift: Tensor, scale: Tensor, gate: Tensor
    ) -> Tensor:
        out, bias = self._run_mlp(mlp, self.ops.ln_modulate(x, shift, scale, self.eps))
        return gated_residual(x, gate, out + bias)


class SingleBlock(FluxBlock):
    """Attention and MLP in parallel from one normalized input (arXiv 2302.05442)."""

    def __init__(self, config: FluxConfig, submodules: BlockSubmodules, **kwargs: Any) -> None:
        super().__init__(config, submodules, **kwargs)
        self.adaln = self._modulation(3)
        self.self_attention: FluxSingleAttention = self._attention(FluxSingleAttention)
        self.mlp = self._mlp(bias=config.single_block_bias)

    def forward(
        self,
        hidden_states: Tensor,
        context: Tensor | None,
        conditioning: Tensor,
        table: RotaryTable,
    ) -> tuple[Tensor, None]:
        """New stream [S_txt+S_img,B,H]; the first single block is the one given a context."""
        if context is not None:
            hidden_states = torch.cat((context, hidden_states))
        shift, scale, gate = self.adaln(conditioning)
        normalized = self.ops.ln_modulate(hidden_states, shift, scale, self.eps)
        attention = self.self_attention(normalized, table)
        out, bias = self._run_mlp(self.mlp, normalized)
        update = out + attention if bias is None else out + bias + attention
        return gated_residual(hidden_states, gate, update), None
