# SPDX-License-Identifier: Apache-2.0
"""FluxConfig: Megatron's TransformerConfig with Flux's fields, every one plumbed and validated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from megatron.core.transformer.enums import AttnBackend
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor

from mxflux.fusions.gates import GateMode

from .architecture import FLUX_12B, FLUX_535M, FluxArchitecture
from .attention_backend import coerce_attention_backend
from .config_rules import find_problems
from .fused import GATE_FIELDS


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU, tanh approximation: the activation of Flux and T5's "openai_gelu"."""
    return torch.nn.functional.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "openai_gelu": gelu_tanh,
    "erf_gelu": torch.nn.functional.gelu,
}


@dataclass
class FluxConfig(TransformerConfig):
    """Everything that decides what a Flux model is and how it runs.

    Raises ValueError with every problem at once, each naming field and value. A Megatron field
    that Flux does not act on must keep its default: a setting never is accepted and ignored.
    """

    model_type: str = "flux"
    num_joint_layers: int = 19
    num_single_layers: int = 38
    hidden_size: int = 3072
    num_attention_heads: int = 24
    in_channels: int = 64
    out_channels: int | None = None
    """Channels of a predicted token; None: in_channels."""
    patch_size: int = 1
    context_dim: int = 4096
    """Width of the T5 embeddings."""
    vec_in_dim: int = 768
    """Width of the pooled CLIP embedding."""
    model_channels: int = 256
    """Width of the sinusoidal timestep embedding."""
    theta: int = 10000
    axes_dim: tuple[int, ...] = (16, 56, 56)
    guidance_embed: bool = False
    guidance_scale: float = 3.5
    """Value fed to the guidance embedding in training; needs guidance_embed."""
    cfg_dropout_prob: float = 0.0
    timestep_sampling_strategy: str = "logit_normal"
    single_block_bias: bool = True
    """Biases of the MLP of a single block (its second one is the output projection's bias)."""

    fp6: str | None = None
    """MXFP6 element format, beside Megatron's fp8 and fp4; the three exclude each other."""
    fp4_use_native_te_autocast: bool = False
    fp4_recipe: Any = None

    fused_qk_norm_rope: str = "off"
    """Gate (off, on, auto): QK RMSNorm and RoPE in one kernel."""
    fused_ln_modulate: str = "off"
    """Gate: LayerNorm and modulation, with the single-pass backward."""
    fused_gate_residual: str = "off"
    """Gate: gated residual and the LayerNorm and modulation that follow it (joint blocks)."""
    fused_qkv_prologue: str = "off"
    """Gate: QKV GEMM, norm and RoPE as one chain; with MX linears one autograd function."""
    fused_mlp: str = "off"
    """Gate: fc1, GELU and fc2 as one chain; with MX linears one autograd function."""
    fused_ln_pack: str = "off"
    """Gate: the norm in front of fused MX consumers packs its output instead of writing it."""

    # Megatron fields with Flux's own defaults.
    activation_func: Any = gelu_tanh
    add_qkv_bias: bool = True
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    layernorm_epsilon: float = 1e-6
    rotary_interleaved: bool = True
    qk_layernorm: bool = True
    """Also what makes Megatron sum the norm-weight gradients over tensor-parallel ranks."""
    use_cpu_initialization: bool = True
    hetereogenous_dist_checkpoint: bool = True
    attention_backend: Any = AttnBackend.auto
    init_method: Any = torch.nn.init.xavier_uniform_
    output_layer_init_method: Any = torch.nn.init.xavier_uniform_

    def __post_init__(self) -> None:
        self._coerce()
        problems = find_problems(self)
        if problems:
            raise ValueError(
                f"FluxConfig: {len(problems)} problem(s):" + "".join(f"\n  {p}" for p in problems)
            )
        self.num_layers = self.num_joint_layers + self.num_single_layers
        # fp8 and fp4 are hidden from Megatron while it builds local linears; this stays
        self.asked_precision = next((n for n in ("fp8", "fp4", "fp6") if getattr(self, n)), None)
        super().__post_init__()

    def _coerce(self) -> None:
        self.attention_backend = coerce_attention_backend(self.attention_backend)
        for key in GATE_FIELDS:
            setattr(self, key, GateMode.from_name(getattr(self, key), key).value)
        if isinstance(self.axes_dim, list):
            self.axes_dim = tuple(self.axes_dim)
        if isinstance(self.activation_func, str):
            if self.activation_func not in ACTIVATIONS:
                raise ValueError(
                    f"activation_func={self.activation_func!r} is unknown. "
                    f"Choose from: {sorted(ACTIVATIONS)}."
                )
            self.activation_func = ACTIVATIONS[self.activation_func]
        if self.out_channels is None:
            self.out_channels = self.in_channels
        if self.ffn_hidden_size is None:
            self.ffn_hidden_size = 4 * self.hidden_size

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def architecture(self) -> FluxArchitecture:
        """The sizes alone, without anything about precision or parallelism."""
        return FluxArchitecture(
            **{name: getattr(self, name) for name in FluxArchitecture.__dataclass_fields__}
        )

    @classmethod
    def from_architecture(cls, architecture: FluxArchitecture, **overrides: Any) -> FluxConfig:
        """Config of a given architecture; ``overrides`` are further fields."""
        sizes = {
            name: getattr(architecture, name) for name in FluxArchitecture.__dataclass_fields__
        }
        return cls(**{**sizes, **overrides})


flux_12b = partial(FluxConfig.from_architecture, FLUX_12B)
"""Flux.1 at full size: 19 joint and 38 single blocks, 11,891,178,560 parameters."""
flux_535m = partial(FluxConfig.from_architecture, FLUX_535M)
"""One joint and one single block at full width, 535,318,336 parameters."""
