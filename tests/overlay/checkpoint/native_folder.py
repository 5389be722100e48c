# SPDX-License-Identifier: Apache-2.0
"""A tiny native checkpoint to convert and to damage."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch

from mxflux.checkpoint.safetensors_file import TensorInfo, write_safetensors
from mxflux.checkpoint.sources import NATIVE_FORMAT, architecture_to_json
from mxflux.flux.architecture import FluxArchitecture

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

TINY = FluxArchitecture(
    num_joint_layers=2,
    num_single_layers=3,
    hidden_size=16,
    num_attention_heads=2,
    ffn_hidden_size=64,
    in_channels=4,
    out_channels=4,
    context_dim=12,
    vec_in_dim=6,
    model_channels=256,
    guidance_embed=True,
    axes_dim=(2, 2, 4),
)


def native_state(arch: FluxArchitecture, dtype: torch.dtype = torch.bfloat16) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {
        name: torch.randn(shape, generator=generator).to(dtype)
        for name, shape in arch.parameter_shapes().items()
    }


def write_native(path: Path, arch: FluxArchitecture, state: dict[str, Tensor]) -> Path:
    path.mkdir()
    config = {"format": NATIVE_FORMAT, "architecture": architecture_to_json(arch)}
    (path / "config.json").write_text(json.dumps(config))
    infos = {name: TensorInfo(tuple(t.shape), t.dtype) for name, t in state.items()}
    write_safetensors(path / "model.safetensors", infos, state.items())
    return path
