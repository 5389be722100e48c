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
from .fused import JOINT_GATES, SINGLE_GATES, BlockOps, fusion_gates
from .modulation import AdaLNModulation
from .norms import gated_residual
from .placement import parameter_device

if TYPE_CHECKING:
    from torch import Tensor

    from mxflux.fusions.gates import FusionGates

    from .config import FluxConfig
    from .fused_mx import Reader
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
        gates: FusionGates | None = None,
        **_: Any,
    ) -> None:
        super().__init__(config=config)
        self.submodules = submodules
        self.gates = gates or fusion_gates(config)
        # Without pipeline stages the local number is the global one, which keys need.
        self.layer_number = layer_number
        self.pg_collection = pg_collection or ProcessGroupCollection.use_mpu_process_groups()

    def _modulation(self, chunks: int) -> AdaLNModulation:
        return AdaLNModulation(
            self.config.hidden_size,
            chunks,
            dtype=self.config.params_dtype,
            device=parameter_device(self.config),
        )

    def _attention(self, kind: type[Any]) -> Any:
        return kind(
            self.config,
            self.submodules.attention,
            self.layer_number,
            self.gates,
            self.pg_collection,
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

    def _ops(self, place: str, keys: tuple[str, ...]) -> BlockOps:
        return BlockOps(self.config, self.gates, place, keys)


class JointBlock(FluxBlock):
    """MMDiT block: joint attention, then one MLP a stream (arXiv 2403.03206, figure 2b)."""

    def __init__(self, config: FluxConfig, submodules: BlockSubmodules, **kwargs: Any) -> None:
        super().__init__(config, submodules, **kwargs)
        place = f"joint.{self.layer_number - 1}"
        self.image_ops = self._ops(f"{place}.image", JOINT_GATES)
        self.text_ops = self._ops(f"{place}.text", JOINT_GATES)
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
        attention, length = self.self_attention, context.shape[0]
        image_out, text_out = attention(
            self.image_ops.ln_modulate(
                hidden_states,
                *image_mod[:2],
                readers=lambda: [attention.image_reader(table.split(length)[1])],
            ),
            self.text_ops.ln_modulate(
                context,
                *text_mod[:2],
                readers=lambda: [attention.text_reader(table.split(length)[0])],
            ),
            table,
        )
        return (
            _finish(self.image_ops, self.mlp, hidden_states, image_out, image_mod[2:]),
            _finish(self.text_ops, self.context_mlp, context, text_out, text_mod[2:]),
        )


def _finish(
    ops: BlockOps, mlp: MLP, x: Tensor, attention: Tensor, modulation: tuple[Tensor, ...]
) -> Tensor:
    """x + gate_msa * attention, then + gate_mlp * MLP of its modulated norm."""
    gate_msa, shift, scale, gate_mlp = modulation
    h, normalized = ops.residual_ln_modulate(
        x, gate_msa, attention, shift, scale, readers=lambda: [_mlp_reader(ops, mlp)]
    )
    out, bias = ops.mlp(mlp, normalized)
    return gated_residual(h, gate_mlp, out if bias is None else out + bias)


def _mlp_reader(ops: BlockOps, mlp: MLP) -> Reader:
    """The MLP as a reader of the norm in front of it."""
    from .fused_mx import Reader

    return Reader(mlp.linear_fc1, lambda x: ops.declines("fused_mlp", mlp, x))


class SingleBlock(FluxBlock):
    """Attention and MLP in parallel from one normalized input (arXiv 2302.05442)."""

    def __init__(self, config: FluxConfig, submodules: BlockSubmodules, **kwargs: Any) -> None:
        super().__init__(config, submodules, **kwargs)
        self.ops = self._ops(f"single.{self.layer_number - 1}", SINGLE_GATES)
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
        normalized = self.ops.ln_modulate(
            hidden_states,
            shift,
            scale,
            readers=lambda: [self.self_attention.reader(table), _mlp_reader(self.ops, self.mlp)],
        )
        attention = self.self_attention(normalized, table)
        out, bias = self.ops.mlp(self.mlp, normalized)
        update = out + attention if bias is None else out + bias + attention
        return gated_residual(hidden_states, gate, update), None
