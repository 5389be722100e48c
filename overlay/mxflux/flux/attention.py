# SPDX-License-Identifier: Apache-2.0
"""Joint attention over text and image, and the attention of a single block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from megatron.core.models.common.embeddings import rope_utils
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.spec_utils import ModuleSpec, build_module
from megatron.core.utils import divide

from .fused import ATTENTION_GATES, BlockOps, announce
from .rope import RotaryTable, apply_rotary

if TYPE_CHECKING:
    from collections.abc import Callable

    from megatron.core.process_groups_config import ProcessGroupCollection
    from torch import Tensor, nn

    from mxflux.fusions.gates import FusionGates

    from .config import FluxConfig
    from .fused_mx import PackedInput, Reader

QKV = tuple["Tensor", "Tensor", "Tensor"]


@dataclass
class AttentionSubmodules:
    """What an attention module is built from; the added ones only exist in joint blocks."""

    linear_qkv: ModuleSpec | type
    linear_proj: ModuleSpec | type
    core_attention: ModuleSpec | type
    qk_layernorm: Callable[..., nn.Module]
    """Called with config, hidden_size and eps (Megatron's build_module does not call functions)."""


def split_mixed_qkv(mixed_qkv: Tensor) -> QKV:
    """Views q, k, v [S,B,heads,D] of mixed_qkv [S,B,heads,3*D], per head [q|k|v].

    This is Megatron's layout: every head has a constant row stride of 3*D.
    """
    q, k, v = mixed_qkv.chunk(3, dim=-1)
    return q, k, v


class FluxAttention(MegatronModule):
    """QKV, head norms, rotation and core attention of one stream; base of both attentions."""

    def __init__(
        self,
        config: FluxConfig,
        submodules: AttentionSubmodules,
        layer_number: int,
        pg_collection: ProcessGroupCollection,
    ) -> None:
        super().__init__(config=config)
        self.layer_number = layer_number
        self.submodules = submodules
        self.pg_collection = pg_collection
        self.heads = divide(config.num_attention_heads, pg_collection.tp.size())
        self.linear_qkv = self._build_qkv()
        self.q_layernorm = self._build_norm()
        self.k_layernorm = self._build_norm()
        self.core_attention = build_module(
            submodules.core_attention,
            config=config,
            layer_number=layer_number,
            attn_mask_type=AttnMaskType.no_mask,
            attention_type="self",
            pg_collection=pg_collection,
        )

    def _build_qkv(self) -> nn.Module:
        size = self.config.hidden_size
        return build_module(
            self.submodules.linear_qkv,
            size,
            3 * size,
            config=self.config,
            init_method=self.config.init_method,
            gather_output=False,
            bias=self.config.add_qkv_bias,
            skip_bias_add=False,
            is_expert=False,
            tp_comm_buffer_name="qkv",
            tp_group=self.pg_collection.tp,
        )

    def _build_proj(self, *, bias: bool) -> nn.Module:
        size = self.config.hidden_size
        return build_module(
            self.submodules.linear_proj,
            size,
            size,
            config=self.config,
            init_method=self.config.output_layer_init_method,
            bias=bias,
            input_is_parallel=True,
            skip_bias_add=True,
            is_expert=False,
            tp_comm_buffer_name="proj",
            tp_group=self.pg_collection.tp,
        )

    def _build_norm(self) -> nn.Module:
        return self.submodules.qk_layernorm(
            self.config,
            hidden_size=self.config.kv_channels,
            eps=self.config.layernorm_epsilon,
        )

    def _qkv(
        self, ops: BlockOps, hidden: Tensor | PackedInput, linear: nn.Module,
        norms: tuple[nn.Module, nn.Module], table: RotaryTable,
    ) -> QKV:  # fmt: skip
        """q, k (normalized and rotated) and v of one stream, [S,B,heads,D] each."""
        # Before any kernel reads them, and in the order of registration, which is the buckets'.
        announce(linear, *norms)
        weights = (norms[0].weight, norms[1].weight)
        fused = ops.qkv_prologue(hidden, linear, *weights, table, heads=self.heads)
        if fused is not None:
            return fused
        mixed_qkv = linear(hidden)[0].unflatten(-1, (self.heads, -1))
        fused = ops.qk_norm_rope(mixed_qkv, *weights, table)
        if fused is not None:
            return fused
        q, k, v = split_mixed_qkv(mixed_qkv)
        q, k = (self._rotate(norm(x), table) for norm, x in zip(norms, (q, k), strict=True))
        return q, k, v

    def _reader(
        self, ops: BlockOps, linear: nn.Module, norms: tuple[nn.Module, nn.Module],
        table: RotaryTable,
    ) -> Reader:  # fmt: skip
        """The QKV projection of one stream as a reader of the norm in front of it."""
        from .fused_mx import Reader

        weights = (norms[0].weight, norms[1].weight)
        return Reader(
            linear, lambda x: ops.declines("fused_qkv_prologue", x, linear, *weights, table)
        )

    def _rotate(self, x: Tensor, table: RotaryTable) -> Tensor:
        if not self.config.apply_rope_fusion:
            return apply_rotary(x, table)
        rotated: Tensor = rope_utils.fused_apply_rotary_pos_emb(x, table.angles, interleaved=True)
        return rotated

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        # A norm that keeps fp32 (as under autocast) must not reach kernels that want one dtype.
        q, k = q.to(v.dtype), k.to(v.dtype)
        if self._recomputes_core_attention():
            from megatron.core import tensor_parallel

            out: Tensor = tensor_parallel.checkpoint(self._core, False, q, k, v)
            return out
        return self._core(q, k, v)

    def _core(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = self.core_attention(
            q, k, v, attention_mask=None, attn_mask_type=AttnMaskType.no_mask
        )
        return out

    def _recomputes_core_attention(self) -> bool:
        return (
            self.training
            and self.config.recompute_granularity == "selective"
            and "core_attn" in self.config.recompute_modules
        )


class JointSelfAttention(FluxAttention):
    """Attention over [text; image] with own projections for each stream."""

    def __init__(
        self,
        config: FluxConfig,
        submodules: AttentionSubmodules,
        layer_number: int,
        gates: FusionGates,
        pg_collection: ProcessGroupCollection,
    ) -> None:
        super().__init__(config, submodules, layer_number, pg_collection)
        place = f"joint.{layer_number - 1}"
        self.image_ops = BlockOps(config, gates, f"{place}.image", ATTENTION_GATES)
        self.text_ops = BlockOps(config, gates, f"{place}.text", ATTENTION_GATES)
        self.added_linear_qkv = self._build_qkv()
        self.added_q_layernorm = self._build_norm()
        self.added_k_layernorm = self._build_norm()
        self.linear_proj = self._build_proj(bias=True)
        self.added_linear_proj = self._build_proj(bias=True)

    @property
    def image_norms(self) -> tuple[nn.Module, nn.Module]:
        """Norms of q and k of the image stream."""
        return self.q_layernorm, self.k_layernorm

    @property
    def text_norms(self) -> tuple[nn.Module, nn.Module]:
        """Norms of q and k of the text stream."""
        return self.added_q_layernorm, self.added_k_layernorm

    def image_reader(self, table: RotaryTable) -> Reader:
        """What reads the image stream's norm; table: of the image positions."""
        return self._reader(self.image_ops, self.linear_qkv, self.image_norms, table)

    def text_reader(self, table: RotaryTable) -> Reader:
        """What reads the text stream's norm; table: of the text positions."""
        return self._reader(self.text_ops, self.added_linear_qkv, self.text_norms, table)

    def forward(
        self, image: Tensor | PackedInput, text: Tensor | PackedInput, table: RotaryTable
    ) -> tuple[Tensor, Tensor]:
        """Attention outputs of image [S_img,B,H] and text [S_txt,B,H], biases added."""
        text_table, image_table = table.split(text.shape[0])
        image_norms, text_norms = self.image_norms, self.text_norms
        image_qkv = self._qkv(self.image_ops, image, self.linear_qkv, image_norms, image_table)
        text_qkv = self._qkv(self.text_ops, text, self.added_linear_qkv, text_norms, text_table)
        q, k, v = (torch.cat(pair) for pair in zip(text_qkv, image_qkv, strict=True))
        text_out, image_out = self._attend(q, k, v).split((text.shape[0], image.shape[0]))
        return _project(self.linear_proj, image_out), _project(self.added_linear_proj, text_out)


class FluxSingleAttention(FluxAttention):
    """Attention of a single block; its projection has no bias."""

    def __init__(
        self,
        config: FluxConfig,
        submodules: AttentionSubmodules,
        layer_number: int,
        gates: FusionGates,
        pg_collection: ProcessGroupCollection,
    ) -> None:
        super().__init__(config, submodules, layer_number, pg_collection)
        self.ops = BlockOps(config, gates, f"single.{layer_number - 1}", ATTENTION_GATES)
        self.linear_proj = self._build_proj(bias=False)

    def reader(self, table: RotaryTable) -> Reader:
        """The QKV projection as a reader of the block's norm."""
        norms = (self.q_layernorm, self.k_layernorm)
        return self._reader(self.ops, self.linear_qkv, norms, table)

    def forward(self, hidden: Tensor | PackedInput, table: RotaryTable) -> Tensor:
        """Attention output [S,B,H] of the concatenated stream [S,B,H]."""
        norms = (self.q_layernorm, self.k_layernorm)
        return _project(
            self.linear_proj,
            self._attend(*self._qkv(self.ops, hidden, self.linear_qkv, norms, table)),
        )


def _project(linear: nn.Module, x: Tensor) -> Tensor:
    out, bias = linear(x)
    return out if bias is None else out + bias
