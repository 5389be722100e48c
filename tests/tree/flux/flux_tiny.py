# SPDX-License-Identifier: Apache-2.0
"""A tiny Flux, its inputs, and weights that leave no path of the model unused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from mxflux.flux.architecture import FluxArchitecture
from mxflux.flux.config import FluxConfig
from mxflux.flux.model import FluxModel
from mxflux.flux.patchify import image_ids, text_ids

if TYPE_CHECKING:
    from torch import Tensor

ARCHITECTURE = FluxArchitecture(
    num_joint_layers=2,
    num_single_layers=2,
    hidden_size=64,
    num_attention_heads=4,
    ffn_hidden_size=256,
    in_channels=8,
    out_channels=8,
    context_dim=20,
    vec_in_dim=12,
    model_channels=256,
    axes_dim=(4, 6, 6),
)


def config(**overrides: Any) -> FluxConfig:
    """A tiny config of the local spec in fp32."""
    return FluxConfig.from_architecture(ARCHITECTURE, **{"transformer_impl": "local", **overrides})


def model(**overrides: Any) -> FluxModel:
    """A tiny model with random weights everywhere, the zero-initialized ones too."""
    built = FluxModel(config(**overrides))
    randomize(built)
    return built


def randomize(module: torch.nn.Module) -> None:
    """Draw every parameter from N(0, 1/fan_in), norm weights around 1, output head included."""
    generator = torch.Generator().manual_seed(11)
    for name, parameter in sorted(module.named_parameters()):
        parameter.data.copy_(_draw(name, parameter.shape, generator))


def full_state(arch: FluxArchitecture = ARCHITECTURE) -> dict[str, Tensor]:
    """Unsharded weights of an architecture, as :func:`randomize` draws them."""
    generator = torch.Generator().manual_seed(11)
    return {
        name: _draw(name, shape, generator)
        for name, shape in sorted(arch.parameter_shapes().items())
    }


def load_shards(module: torch.nn.Module, state: dict[str, Tensor], rank: int, world: int) -> None:
    """Copy this tensor-parallel rank's part of unsharded weights into a model."""
    for name, parameter in module.named_parameters():
        parameter.data.copy_(shard(parameter, state[name], rank, world))


def shard(parameter: Tensor, full: Tensor, rank: int, world: int) -> Tensor:
    """The part of ``full`` that ``parameter`` holds on one tensor-parallel rank."""
    if not getattr(parameter, "tensor_model_parallel", False):
        return full
    return full.chunk(world, dim=parameter.partition_dim)[rank]


def _draw(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    draw = torch.randn(shape, generator=generator, dtype=torch.float64)
    norm = len(shape) == 1 and "bias" not in name
    return 1 + 0.2 * draw if norm else draw * shape[-1] ** -0.5


def inputs(
    batch: int = 3, text: int = 5, height: int = 4, width: int = 8, guidance: bool = False
) -> dict[str, Tensor]:
    """Inputs in layout "sbh", rounded to bf16 so that every precision sees the same values."""
    generator = torch.Generator().manual_seed(5)

    def draw(*shape: int) -> Tensor:
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        return values.bfloat16().double()

    arch = ARCHITECTURE
    tokens = height // 2 * (width // 2)
    out = {
        "img": draw(tokens, batch, arch.in_channels),
        "txt": draw(text, batch, arch.context_dim),
        "y": draw(batch, arch.vec_in_dim),
        # Exact in bf16 before and after the factor 1000, so that the sinusoid sees one value.
        "timesteps": torch.tensor([0.125, 0.5, 0.75], dtype=torch.float64)[:batch],
        "img_ids": image_ids(batch, height, width),
        "txt_ids": text_ids(batch, text),
    }
    if guidance:
        out["guidance"] = torch.tensor([0.5, 0.25, 1.0], dtype=torch.float64)[:batch]
    return out


def cast(values: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Floating inputs in another dtype; ids stay integers."""
    return {
        name: value.to(dtype) if value.is_floating_point() else value
        for name, value in values.items()
    }
