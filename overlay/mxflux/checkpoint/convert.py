# SPDX-License-Identifier: Apache-2.0
"""Convert Flux weights between layouts, a few tensors at a time, without changing a bit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .casting import CastView, View, cast_dtype
from .errors import CheckpointError
from .locate import locate
from .manifest import Manifest, read_manifest
from .native_view import NativeView
from .publish import require_absent
from .sources import architecture_to_json, open_checkpoint
from .targets import DEFAULT_SHARD_BYTES, LAYOUTS, check_target, write_target
from .verify import file_problems, manifest_of

if TYPE_CHECKING:
    from mxflux.flux.architecture import FluxArchitecture


def convert(
    source: Path | str,
    destination: Path | str,
    *,
    to: str,
    architecture: FluxArchitecture | None = None,
    max_shard_bytes: int = DEFAULT_SHARD_BYTES,
    dtype: str | None = None,
    allow_nan: bool = False,
    verify_source: bool = True,
) -> Manifest:
    """Convert a checkpoint to layout ``to``: "diffusers", "bfl", "mxflux" or "megatron".

    ``source`` is a diffusers transformer folder, a BFL .safetensors file, a native folder, a
    Megatron torch_dist checkpoint, or a run (see locate). Of a training checkpoint the weights
    are taken. Values are moved, and rounded only when ``dtype`` ("float32", "bfloat16",
    "float16") asks for it; the result carries a manifest with a SHA-256 for each tensor and
    file, and appears in one step. A source with a manifest is verified first.
    Raises CheckpointError with the list of all differences when the source is damaged, not
    complete, has more than the model, or holds NaN or infinities that are not allowed;
    ValueError when ``to`` cannot express the architecture; FileExistsError when the destination
    exists.
    """
    if to not in LAYOUTS:
        raise ValueError(f"to={to!r} is unknown. Choose from: {', '.join(LAYOUTS)}.")
    wanted = cast_dtype(dtype) if dtype is not None else None
    path = locate(source)
    if verify_source:
        _verify_files(path)
    checkpoint = open_checkpoint(path, architecture)
    check_target(to, checkpoint.architecture)
    require_absent(Path(destination))
    view: View = NativeView(checkpoint, allow_nan=allow_nan)
    if wanted is not None:
        view = CastView(view, wanted)
    manifest = Manifest(to, architecture_to_json(checkpoint.architecture))
    write_target(to, Path(destination), checkpoint.architecture, view, manifest, max_shard_bytes)
    return manifest


def _verify_files(path: Path) -> None:
    """Raise CheckpointError when a file is not what the manifest, if there is one, says."""
    folder, record = manifest_of(path)
    if not record.is_file():
        return
    manifest = read_manifest(record)
    problems = file_problems(folder, manifest, sorted(manifest.files))
    if problems:
        raise CheckpointError(f"{path}: {len(problems)} problem(s):", problems)
