# SPDX-License-Identifier: Apache-2.0
"""The shape of a Flux model: every number that decides which tensors it has."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Shape = tuple[int, ...]

_POSITIVE = (
    "num_joint_layers",
    "num_single_layers",
    "hidden_size",
    "num_attention_heads",
    "ffn_hidden_size",
    "in_channels",
    "out_channels",
    "patch_size",
    "context_dim",
    "vec_in_dim",
    "model_channels",
    "theta",
)


@dataclass(frozen=True)
class FluxArchitecture:
    """Sizes of a Flux transformer; the defaults are Flux.1 schnell ("12B").

    Raises ValueError naming field and value when a size cannot make a model.
    Source: black-forest-labs/flux ``FluxParams``, diffusers ``FluxTransformer2DModel``.
    """

    num_joint_layers: int = 19
    num_single_layers: int = 38
    hidden_size: int = 3072
    num_attention_heads: int = 24
    ffn_hidden_size: int = 12288
    in_channels: int = 64
    out_channels: int = 64
    patch_size: int = 1
    context_dim: int = 4096
    vec_in_dim: int = 768
    model_channels: int = 256
    guidance_embed: bool = False
    theta: int = 10000
    axes_dim: tuple[int, ...] = (16, 56, 56)
    add_qkv_bias: bool = True
    single_block_bias: bool = True

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            _require_positive(name, getattr(self, name))
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} is not divisible by "
                f"num_attention_heads={self.num_attention_heads}"
            )
        check_axes(self.axes_dim, self.head_dim)
        if self.model_channels % 2:
            raise ValueError(
                f"model_channels={self.model_channels} must be even: half cosines, half sines"
            )

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def num_layers(self) -> int:
        """Joint and single blocks together, the range of the global layer index."""
        return self.num_joint_layers + self.num_single_layers

    @property
    def num_parameters(self) -> int:
        """Parameter count, from the shapes alone."""
        return sum(prod(shape) for shape in self.parameter_shapes().values())

    @property
    def num_quantized_linears(self) -> int:
        """Linears inside the quantization context: 8 in a joint block, 4 in a single one."""
        return 8 * self.num_joint_layers + 4 * self.num_single_layers

    def parameter_shapes(self) -> dict[str, Shape]:
        """Name -> shape of every parameter, in module order, for one tensor-parallel rank.

        Names are the state-dict names of ``FluxModel``.
        """
        shapes = dict(self._outer_shapes())
        for index in range(self.num_layers):
            prefix = f"transformer.layers.{index}."
            block = self._joint_shapes() if index < self.num_joint_layers else self._single_shapes()
            shapes.update((prefix + name, shape) for name, shape in block)
        return shapes

    def differences(self, other: FluxArchitecture) -> list[str]:
        """One line for every field in which two architectures differ."""
        return [
            f"{field.name}: {getattr(self, field.name)!r} != {getattr(other, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        ]

    def _outer_shapes(self) -> Iterator[tuple[str, Shape]]:
        h = self.hidden_size
        yield from _linear("img_embed", self.in_channels, h)
        yield from _linear("txt_embed", self.context_dim, h)
        yield from _mlp_embedder("timestep_embedding.time_embedding", self.model_channels, h)
        yield from _mlp_embedder("vector_embedding", self.vec_in_dim, h)
        if self.guidance_embed:
            yield from _mlp_embedder("guidance_embedding", self.model_channels, h)
        yield from _linear("norm_out.adaLN_modulation.1", h, 2 * h)
        yield from _linear("proj_out", h, self.patch_size**2 * self.out_channels)

    def _joint_shapes(self) -> Iterator[tuple[str, Shape]]:
        h, ffn = self.hidden_size, self.ffn_hidden_size
        yield from _linear("adaln.adaLN_modulation.1", h, 6 * h)
        yield from _linear("adaln_context.adaLN_modulation.1", h, 6 * h)
        yield from _linear("self_attention.linear_qkv", h, 3 * h, bias=self.add_qkv_bias)
        yield from _linear("self_attention.linear_proj", h, h)
        yield from _linear("self_attention.added_linear_qkv", h, 3 * h, bias=self.add_qkv_bias)
        yield from _linear("self_attention.added_linear_proj", h, h)
        for norm in ("q_layernorm", "k_layernorm", "added_q_layernorm", "added_k_layernorm"):
            yield f"self_attention.{norm}.weight", (self.head_dim,)
        for mlp in ("mlp", "context_mlp"):
            yield from _linear(f"{mlp}.linear_fc1", h, ffn)
            yield from _linear(f"{mlp}.linear_fc2", ffn, h)

    def _single_shapes(self) -> Iterator[tuple[str, Shape]]:
        h, ffn, bias = self.hidden_size, self.ffn_hidden_size, self.single_block_bias
        yield from _linear("adaln.adaLN_modulation.1", h, 3 * h)
        yield from _linear("self_attention.linear_qkv", h, 3 * h, bias=self.add_qkv_bias)
        # The one bias of the fused output projection lives on linear_fc2.
        yield from _linear("self_attention.linear_proj", h, h, bias=False)
        for norm in ("q_layernorm", "k_layernorm"):
            yield f"self_attention.{norm}.weight", (self.head_dim,)
        yield from _linear("mlp.linear_fc1", h, ffn, bias=bias)
        yield from _linear("mlp.linear_fc2", ffn, h, bias=bias)


def check_axes(axes_dim: tuple[int, ...], head_dim: int) -> None:
    """Raise ValueError unless ``axes_dim`` is 3 positive even widths summing to ``head_dim``."""
    if len(axes_dim) != 3:
        raise ValueError(f"axes_dim={axes_dim!r} must have 3 entries, got {len(axes_dim)}")
    for width in axes_dim:
        _require_positive("axes_dim", width, axes_dim)
        if width % 2:
            raise ValueError(f"axes_dim={axes_dim!r}: {width} is odd, RoPE rotates pairs")
    if sum(axes_dim) != head_dim:
        raise ValueError(
            f"axes_dim={axes_dim!r} sums to {sum(axes_dim)}, not to head_dim={head_dim} "
            "(hidden_size / num_attention_heads)"
        )


def _require_positive(name: str, value: object, shown: object = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        shown = value if shown is None else shown
        raise ValueError(f"{name}={shown!r} must be a positive integer")


def _linear(name: str, fan_in: int, fan_out: int, bias: bool = True) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (fan_out, fan_in)
    if bias:
        yield f"{name}.bias", (fan_out,)


def _mlp_embedder(name: str, fan_in: int, hidden: int) -> Iterator[tuple[str, Shape]]:
    yield from _linear(f"{name}.in_layer", fan_in, hidden)
    yield from _linear(f"{name}.out_layer", hidden, hidden)


FLUX_12B = FluxArchitecture()
FLUX_535M = FluxArchitecture(num_joint_layers=1, num_single_layers=1)
FLUX_TINY = FluxArchitecture(
    num_joint_layers=1,
    num_single_layers=1,
    hidden_size=128,
    num_attention_heads=4,
    ffn_hidden_size=512,
    context_dim=32,
    vec_in_dim=32,
    axes_dim=(8, 12, 12),
)
"""Flux's latents and tokens at a size that learns handwritten digits in a minute on a CPU; what
diffusers fixes (model_channels) is as there, so that it converts.
"""
PRESETS = {"flux_12b": FLUX_12B, "flux_535m": FLUX_535M, "flux_tiny": FLUX_TINY}
