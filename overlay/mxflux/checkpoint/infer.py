# SPDX-License-Identifier: Apache-2.0
"""The architecture of a BFL checkpoint, read off its tensor names and shapes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mxflux.flux.architecture import FluxArchitecture

from .errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

    from .safetensors_file import TensorInfo

_FLUX_AXES = {128: (16, 56, 56)}
_ANCHORS = (
    "img_in.weight",
    "txt_in.weight",
    "time_in.in_layer.weight",
    "vector_in.in_layer.weight",
    "double_blocks.0.img_mlp.0.weight",
    "double_blocks.0.img_attn.norm.query_norm.scale",
    "final_layer.linear.weight",
)


def architecture_from_bfl(
    tensors: dict[str, TensorInfo], path: Path, expected: FluxArchitecture | None
) -> FluxArchitecture:
    """Architecture of a BFL file; ``expected`` supplies what shapes cannot say (axes, theta).

    Raises CheckpointError naming the missing tensors, or the fields that disagree.
    """
    missing = [name for name in _ANCHORS if name not in tensors]
    if missing:
        raise CheckpointError(f"{path}: not a BFL Flux checkpoint, it lacks:", missing)
    head_dim = tensors["double_blocks.0.img_attn.norm.query_norm.scale"].shape[0]
    found = _sizes(tensors, path, _axes(head_dim, path, expected), expected)
    if expected is not None and found != expected:
        raise CheckpointError(
            f"{path}: another architecture (checkpoint != asked for):", found.differences(expected)
        )
    return found


def _axes(head_dim: int, path: Path, expected: FluxArchitecture | None) -> tuple[int, ...]:
    if expected is not None:
        return expected.axes_dim
    if head_dim not in _FLUX_AXES:
        raise CheckpointError(
            f"{path}: heads are {head_dim} wide, which does not tell axes_dim: "
            "give the architecture"
        )
    return _FLUX_AXES[head_dim]


def _sizes(
    tensors: dict[str, TensorInfo],
    path: Path,
    axes: tuple[int, ...],
    expected: FluxArchitecture | None,
) -> FluxArchitecture:
    hidden, in_channels = tensors["img_in.weight"].shape
    try:
        return FluxArchitecture(
            num_joint_layers=_count(tensors, "double_blocks"),
            num_single_layers=_count(tensors, "single_blocks"),
            hidden_size=hidden,
            num_attention_heads=hidden // sum(axes),
            ffn_hidden_size=tensors["double_blocks.0.img_mlp.0.weight"].shape[0],
            in_channels=in_channels,
            out_channels=tensors["final_layer.linear.weight"].shape[0],
            context_dim=tensors["txt_in.weight"].shape[1],
            vec_in_dim=tensors["vector_in.in_layer.weight"].shape[1],
            model_channels=tensors["time_in.in_layer.weight"].shape[1],
            guidance_embed="guidance_in.in_layer.weight" in tensors,
            theta=expected.theta if expected is not None else 10000,
            axes_dim=axes,
        )
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _count(tensors: dict[str, TensorInfo], stem: str) -> int:
    pattern = re.compile(rf"{stem}\.(\d+)\.")
    indices = {int(match[1]) for name in tensors if (match := pattern.match(name))}
    return max(indices, default=-1) + 1
