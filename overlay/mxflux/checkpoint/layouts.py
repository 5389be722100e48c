# SPDX-License-Identifier: Apache-2.0
"""Tensor names of diffusers and BFL, linked to the native ones.

Sources: diffusers ``FluxTransformer2DModel``, black-forest-labs/flux ``model.py``. The halves of
the output modulation are (scale, shift) in diffusers and here, (shift, scale) in BFL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .links import (
    Link,
    fused_qkv,
    joined_columns,
    same,
    stacked_qkv,
    stacked_qkv_mlp,
    swapped_halves,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxflux.flux.architecture import FluxArchitecture


def diffusers_links(arch: FluxArchitecture) -> list[Link]:
    """Links between the native names and those of a diffusers transformer folder."""
    return [*_diffusers_outer(arch), *_diffusers_joint(arch), *_diffusers_single(arch)]


def bfl_links(arch: FluxArchitecture) -> list[Link]:
    """Links between the native names and those of a BFL single-file checkpoint."""
    return [*_bfl_outer(arch), *_bfl_joint(arch), *_bfl_single(arch)]


def native_links(arch: FluxArchitecture) -> list[Link]:
    """Identity links over the native names."""
    return [same(name, name) for name in arch.parameter_shapes()]


def _linear(native: str, foreign: str) -> Iterator[Link]:
    for part in ("weight", "bias"):
        yield same(f"{native}.{part}", f"{foreign}.{part}")


def _embedder(native: str, foreign: str, layers: tuple[str, str]) -> Iterator[Link]:
    for ours, theirs in zip(("in_layer", "out_layer"), layers, strict=True):
        yield from _linear(f"{native}.{ours}", f"{foreign}.{theirs}")


def _embedders(
    arch: FluxArchitecture, names: dict[str, str], layers: tuple[str, str]
) -> Iterator[Link]:
    yield from _embedder("timestep_embedding.time_embedding", names["time"], layers)
    yield from _embedder("vector_embedding", names["vector"], layers)
    if arch.guidance_embed:
        yield from _embedder("guidance_embedding", names["guidance"], layers)


def _diffusers_outer(arch: FluxArchitecture) -> Iterator[Link]:
    yield from _linear("img_embed", "x_embedder")
    yield from _linear("txt_embed", "context_embedder")
    names = {
        "time": "time_text_embed.timestep_embedder",
        "vector": "time_text_embed.text_embedder",
        "guidance": "time_text_embed.guidance_embedder",
    }
    yield from _embedders(arch, names, ("linear_1", "linear_2"))
    yield from _linear("norm_out.adaLN_modulation.1", "norm_out.linear")
    yield from _linear("proj_out", "proj_out")


def _diffusers_qkv(arch: FluxArchitecture, native: str, foreign: list[str]) -> Iterator[Link]:
    for part in ("weight", "bias"):
        q, k, v = (f"{name}.{part}" for name in foreign)
        yield fused_qkv(f"{native}.{part}", (q, k, v), arch.num_attention_heads)


def _diffusers_joint(arch: FluxArchitecture) -> Iterator[Link]:
    for index in range(arch.num_joint_layers):
        ours, theirs = f"transformer.layers.{index}", f"transformer_blocks.{index}"
        yield from _linear(f"{ours}.adaln.adaLN_modulation.1", f"{theirs}.norm1.linear")
        yield from _linear(
            f"{ours}.adaln_context.adaLN_modulation.1", f"{theirs}.norm1_context.linear"
        )
        attention, attn = f"{ours}.self_attention", f"{theirs}.attn"
        image, text = ("to_q", "to_k", "to_v"), ("add_q_proj", "add_k_proj", "add_v_proj")
        for name, parts in (("linear_qkv", image), ("added_linear_qkv", text)):
            yield from _diffusers_qkv(
                arch, f"{attention}.{name}", [f"{attn}.{part}" for part in parts]
            )
        for prefix, added in (("", ""), ("added_", "added_")):
            for letter in "qk":
                yield same(
                    f"{attention}.{prefix}{letter}_layernorm.weight",
                    f"{attn}.norm_{added}{letter}.weight",
                )
        yield from _linear(f"{attention}.linear_proj", f"{attn}.to_out.0")
        yield from _linear(f"{attention}.added_linear_proj", f"{attn}.to_add_out")
        for mlp, ff in (("mlp", "ff"), ("context_mlp", "ff_context")):
            yield from _linear(f"{ours}.{mlp}.linear_fc1", f"{theirs}.{ff}.net.0.proj")
            yield from _linear(f"{ours}.{mlp}.linear_fc2", f"{theirs}.{ff}.net.2")


def _diffusers_single(arch: FluxArchitecture) -> Iterator[Link]:
    for index in range(arch.num_single_layers):
        ours = f"transformer.layers.{arch.num_joint_layers + index}"
        theirs = f"single_transformer_blocks.{index}"
        yield from _linear(f"{ours}.adaln.adaLN_modulation.1", f"{theirs}.norm.linear")
        attn = [f"{theirs}.attn.{name}" for name in ("to_q", "to_k", "to_v")]
        yield from _diffusers_qkv(arch, f"{ours}.self_attention.linear_qkv", attn)
        for letter in "qk":
            yield same(
                f"{ours}.self_attention.{letter}_layernorm.weight",
                f"{theirs}.attn.norm_{letter}.weight",
            )
        yield from _linear(f"{ours}.mlp.linear_fc1", f"{theirs}.proj_mlp")
        yield from _output_projection(arch, ours, f"{theirs}.proj_out")


def _output_projection(arch: FluxArchitecture, ours: str, theirs: str) -> Iterator[Link]:
    weights = (f"{ours}.self_attention.linear_proj.weight", f"{ours}.mlp.linear_fc2.weight")
    yield joined_columns(weights, f"{theirs}.weight", arch.hidden_size)
    yield same(f"{ours}.mlp.linear_fc2.bias", f"{theirs}.bias")


def _bfl_outer(arch: FluxArchitecture) -> Iterator[Link]:
    yield from _linear("img_embed", "img_in")
    yield from _linear("txt_embed", "txt_in")
    names = {"time": "time_in", "vector": "vector_in", "guidance": "guidance_in"}
    yield from _embedders(arch, names, ("in_layer", "out_layer"))
    for part in ("weight", "bias"):
        yield swapped_halves(
            f"norm_out.adaLN_modulation.1.{part}", f"final_layer.adaLN_modulation.1.{part}"
        )
    yield from _linear("proj_out", "final_layer.linear")


def _bfl_norms(native: str, foreign: str) -> Iterator[Link]:
    for letter, name in (("q", "query"), ("k", "key")):
        yield same(f"{native}{letter}_layernorm.weight", f"{foreign}.{name}_norm.scale")


def _bfl_joint(arch: FluxArchitecture) -> Iterator[Link]:
    for index in range(arch.num_joint_layers):
        ours, theirs = f"transformer.layers.{index}", f"double_blocks.{index}"
        streams = (("img", "adaln", "", "mlp"), ("txt", "adaln_context", "added_", "context_mlp"))
        for stream, adaln, added, mlp in streams:
            attention, attn = f"{ours}.self_attention.{added}", f"{theirs}.{stream}_attn"
            yield from _linear(f"{ours}.{adaln}.adaLN_modulation.1", f"{theirs}.{stream}_mod.lin")
            for part in ("weight", "bias"):
                yield stacked_qkv(
                    f"{attention}linear_qkv.{part}", f"{attn}.qkv.{part}", arch.num_attention_heads
                )
            yield from _bfl_norms(attention, f"{attn}.norm")
            yield from _linear(f"{attention}linear_proj", f"{attn}.proj")
            yield from _linear(f"{ours}.{mlp}.linear_fc1", f"{theirs}.{stream}_mlp.0")
            yield from _linear(f"{ours}.{mlp}.linear_fc2", f"{theirs}.{stream}_mlp.2")


def _bfl_single(arch: FluxArchitecture) -> Iterator[Link]:
    for index in range(arch.num_single_layers):
        ours = f"transformer.layers.{arch.num_joint_layers + index}"
        theirs = f"single_blocks.{index}"
        yield from _linear(f"{ours}.adaln.adaLN_modulation.1", f"{theirs}.modulation.lin")
        for part in ("weight", "bias"):
            native = (f"{ours}.self_attention.linear_qkv.{part}", f"{ours}.mlp.linear_fc1.{part}")
            yield stacked_qkv_mlp(
                native, f"{theirs}.linear1.{part}", arch.num_attention_heads, arch.hidden_size
            )
        yield from _bfl_norms(f"{ours}.self_attention.", f"{theirs}.norm")
        yield from _output_projection(arch, ours, f"{theirs}.linear2")
