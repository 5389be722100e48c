# SPDX-License-Identifier: Apache-2.0
"""Convert Flux weights between layouts, a few tensors at a time, without changing a bit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .manifest import Manifest
from .native_view import NativeView
from .sources import architecture_to_json, open_checkpoint
from .targets import DEFAULT_SHARD_BYTES, LAYOUTS, check_target, write_target

if TYPE_CHECKING:
    from mxflux.flux.architecture import FluxArchitecture


def convert(
    source: Path | str,
    destination: Path | str,
    *,
    to: str,
    architecture: FluxArchitecture | None = None,
    max_shard_bytes: int = DEFAULT_SHARD_BYTES,
) -> Manifest:
    """Convert a checkpoint to layout ``to``: "diffusers", "bfl", "mxflux" or "megatron".

    ``source`` is a diffusers transformer folder, a BFL .safetensors file, a native folder or a
    Megatron torch_dist checkpoint. Values are moved, never rounded; dtypes are kept; the result
    carries a manifest with a SHA-256 for each tensor and file, and appears in one step.
    Raises CheckpointError with the list of all differences when the source is not complete, has
    more than the model, or holds NaN; ValueError when ``to`` cannot express the architecture;
    FileExistsError when the destination exists.
    """
    if to not in LAYOUTS:
        raise ValueError(f"to={to!r} is unknown. Choose from: {', '.join(LAYOUTS)}.")
    checkpoint = open_checkpoint(Path(source), architecture)
    check_target(to, checkpoint.architecture)
    view = NativeView(checkpoint)
    manifest = Manifest(to, architecture_to_json(checkpoint.architecture))
    write_target(to, Path(destination), checkpoint.architecture, view, manifest, max_shard_bytes)
    return manifest
