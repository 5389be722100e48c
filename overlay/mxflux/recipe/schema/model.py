# SPDX-License-Identifier: Apache-2.0
"""Section `model`: the architecture, how its blocks are built, and what is drawn for a step."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from .base import Integers, NotNegative, Positive, PositiveNumber, Section, Share, Texts

Gate = Literal["off", "on", "auto"]
AttentionBackend = Literal["auto", "flash", "fused", "unfused", "local"]


def _without_blanks(value: object) -> object:
    """Blanks around a name do not count."""
    return value.strip() if isinstance(value, str) else value


class Model(Section):
    """What is trained. A size left at null is that of the preset."""

    preset: Literal["flux_12b", "flux_535m", "flux_tiny"]
    """Sizes to start from: Flux.1 in full, one block of each kind at full width, or a tiny one."""
    num_joint_layers: Positive | None = None
    """Blocks with separate weights for image and text."""
    num_single_layers: Positive | None = None
    """Blocks in which image and text share weights."""
    hidden_size: Positive | None = None
    """Width of the residual stream."""
    num_attention_heads: Positive | None = None
    """Attention heads; hidden_size must be divisible by it."""
    ffn_hidden_size: Positive | None = None
    """Width of the MLPs; null with another hidden_size: four times that."""
    in_channels: Positive | None = None
    """Channels of an image token: latent channels times the four pixels of a 2x2 patch."""
    out_channels: Positive | None = None
    """Channels of a predicted token."""
    patch_size: Positive | None = None
    """Side of the patch that the output head predicts, in tokens."""
    context_dim: Positive | None = None
    """Width of the T5 embeddings."""
    vec_in_dim: Positive | None = None
    """Width of the pooled CLIP embedding."""
    model_channels: Positive | None = None
    """Width of the sinusoidal timestep embedding; even."""
    theta: Positive | None = None
    """Base of the rotary frequencies."""
    axes_dim: Integers | None = None
    """Rotary widths of the three position axes: even, and together the width of a head."""
    guidance_embed: bool | None = None
    """Whether the model takes a guidance value (Flux.1 dev)."""
    add_qkv_bias: bool | None = None
    """Biases on the QKV linears."""
    single_block_bias: bool | None = None
    """Biases on the MLP of a single block."""

    guidance_scale: PositiveNumber = 3.5
    """Guidance value in training; needs guidance_embed."""
    cfg_dropout_prob: Share = 0.0
    """Share of samples whose prompt is replaced by the empty one, for classifier-free guidance."""
    timestep_sampling_strategy: Literal["logit_normal", "uniform", "direct_uniform", "mode"] = (
        "logit_normal"
    )
    """Distribution of the training noise levels."""
    scheduler_shift: PositiveNumber = 1.0
    """Shift of the noise levels towards more noise (arXiv 2403.03206, equation 23)."""

    transformer_impl: Literal["transformer_engine", "local"] = "local"
    """Whose linears, norms and attention the blocks are built from."""
    attention_backend: Annotated[AttentionBackend, BeforeValidator(_without_blanks)] = "auto"
    """Attention kernel; fused is TransformerEngine's (CK on MI355X)."""
    position_embedding_type: Literal["rope", "learned_absolute", "none"] = "rope"
    """Megatron's switch beside apply_rope_fusion: it clears the latter unless this is rope."""
    apply_rope_fusion: bool = False
    """TransformerEngine's fused rotation: images of one size in a batch only."""
    rotary_interleaved: bool = True
    """Flux rotates adjacent pairs: only true is supported."""
    activation_func: Literal["openai_gelu", "erf_gelu"] = "openai_gelu"
    """GELU by tanh, as in Flux, or by erf."""
    layernorm_epsilon: PositiveNumber = 1e-6
    """Epsilon of every LayerNorm and RMSNorm."""
    attention_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout on attention weights."""
    attention_softmax_in_fp32: bool = True
    """Softmax of the unfused attention in fp32."""
    use_cpu_initialization: bool = True
    """Draw the initial weights on the CPU, the same on every device."""

    recompute_granularity: Literal["full", "selective"] | None = None
    """What is recomputed in backward: whole blocks, or recompute_modules."""
    recompute_method: Literal["uniform", "block"] | None = None
    """How whole blocks are chosen for recomputation."""
    recompute_num_layers: Positive | None = None
    """Blocks recomputed together (uniform), or recomputed at all (block)."""
    recompute_modules: Texts | None = None
    """Modules recomputed with granularity selective: core_attn."""
    first_last_layers_bf16: bool = False
    """Keep the blocks at both ends in BF16, the others as `precision` says."""
    num_layers_at_start_in_bf16: NotNegative = 1
    """Blocks at the start that stay in BF16."""
    num_layers_at_end_in_bf16: NotNegative = 1
    """Blocks at the end that stay in BF16."""

    # Each gate: on raises where the path cannot engage, auto takes the plain path and counts why.
    fused_qk_norm_rope: Gate = "off"
    """RMSNorm of q and k and the rotation in one kernel."""
    fused_ln_modulate: Gate = "off"
    """LayerNorm and modulation in one kernel, with a single-pass backward."""
    fused_gate_residual: Gate = "off"
    """Gated residual, then LayerNorm and modulation, in one kernel."""
    fused_qkv_prologue: Gate = "off"
    """QKV GEMM, norm and rotation as one chain; with MX linears one autograd function."""
    fused_mlp: Gate = "off"
    """fc1, GELU and fc2 as one chain; with MX linears one autograd function."""
    fused_ln_pack: Gate = "off"
    """The norm in front of the prologue and the fused MLP packs its output instead of writing it;
    needs both of them."""
