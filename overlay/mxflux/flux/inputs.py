# SPDX-License-Identifier: Apache-2.0
"""Checks of the model's inputs: shapes and dtypes, each named when it does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from .config import FluxConfig

LAYOUTS = {"sbh": (0, 1), "bsh": (1, 0)}
"""Layout -> position of the sequence axis and of the batch axis."""


def check_inputs(
    config: FluxConfig,
    layout: str,
    *,
    img: Tensor,
    txt: Tensor,
    y: Tensor,
    timesteps: Tensor,
    img_ids: Tensor,
    txt_ids: Tensor,
    guidance: Tensor | None,
) -> None:
    """Raise ValueError naming the first input that does not fit the config or the others."""
    if layout not in LAYOUTS:
        raise ValueError(f"layout={layout!r} is unknown. Choose from: {', '.join(LAYOUTS)}.")
    sequence, batch_axis = LAYOUTS[layout]
    _require_rank("img", img, 3, layout)
    _require_rank("txt", txt, 3, layout)
    batch = img.shape[batch_axis]
    shape = {sequence: txt.shape[sequence], batch_axis: batch, 2: config.context_dim}
    _require_shape("txt", txt, tuple(shape[axis] for axis in range(3)))
    shape = {sequence: img.shape[sequence], batch_axis: batch, 2: config.in_channels}
    _require_shape("img", img, tuple(shape[axis] for axis in range(3)))
    _require_shape("y", y, (batch, config.vec_in_dim))
    _require_shape("timesteps", timesteps, (batch,))
    ids_batch = _ids_batch(config, batch, img_ids)
    _require_shape("img_ids", img_ids, (ids_batch, img.shape[sequence], len(config.axes_dim)))
    _require_shape("txt_ids", txt_ids, (ids_batch, txt.shape[sequence], len(config.axes_dim)))
    _check_guidance(config, guidance, batch)


def _ids_batch(config: FluxConfig, batch: int, img_ids: Tensor) -> int:
    """TE's fused rotation takes one table for the whole batch; the other path takes both forms."""
    given = img_ids.shape[0] if img_ids.dim() else 0
    return 1 if config.apply_rope_fusion or given == 1 else batch


def _check_guidance(config: FluxConfig, guidance: Tensor | None, batch: int) -> None:
    if config.guidance_embed and guidance is None:
        raise ValueError("guidance_embed=True: the model needs guidance [B], got None")
    if not config.guidance_embed and guidance is not None:
        raise ValueError("guidance was given, but guidance_embed=False has no use for it")
    if guidance is not None:
        _require_shape("guidance", guidance, (batch,))


def _require_rank(name: str, tensor: Tensor, rank: int, layout: str) -> None:
    if tensor.dim() != rank:
        raise ValueError(f"{name} must be {list(layout)}, got shape {tuple(tensor.shape)}")


def _require_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
