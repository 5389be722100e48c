# SPDX-License-Identifier: Apache-2.0
"""diffusers' FluxTransformer2DModel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from mxflux.benchmarks.workload import Workload


def requirement() -> str:
    """Any release."""
    return "diffusers"


def build(work: Workload) -> torch.nn.Module:
    """The model, without guidance embeddings."""
    from diffusers import FluxTransformer2DModel

    arch = work.architecture
    before = torch.get_default_dtype()
    torch.set_default_dtype(work.dtype)
    try:
        with torch.device(work.device):
            model: torch.nn.Module = FluxTransformer2DModel(
                patch_size=1,
                in_channels=arch.in_channels,
                num_layers=arch.num_joint_layers,
                num_single_layers=arch.num_single_layers,
                attention_head_dim=arch.head_dim,
                num_attention_heads=arch.num_attention_heads,
                joint_attention_dim=arch.context_dim,
                pooled_projection_dim=arch.vec_in_dim,
                guidance_embeds=False,
                axes_dims_rope=arch.axes_dim,
            )
    finally:
        torch.set_default_dtype(before)
    return model.to(work.dtype)


def forward(model: torch.nn.Module, work: Workload) -> Callable[[], torch.Tensor]:
    """Positions are given once, for all samples."""
    given = work.inputs()
    batch_first = {
        "hidden_states": given["img"].transpose(0, 1).contiguous(),
        "encoder_hidden_states": given["txt"].transpose(0, 1).contiguous(),
        "pooled_projections": given["y"],
        "timestep": given["timesteps"],
        "img_ids": given["img_ids"][0].float(),
        "txt_ids": given["txt_ids"][0].float(),
    }

    def run() -> torch.Tensor:
        output: torch.Tensor = model(**batch_first, return_dict=False)[0]
        return output

    return run


def recompute(model: Any) -> None:
    """diffusers' own checkpointing: each block."""
    model.enable_gradient_checkpointing()


def compile_blocks(model: Any) -> None:
    """Joint and single blocks."""
    for block in (*model.transformer_blocks, *model.single_transformer_blocks):
        block.compile()
