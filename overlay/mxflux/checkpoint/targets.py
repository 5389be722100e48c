# SPDX-License-Identifier: Apache-2.0
"""Checkpoints to write: diffusers folder, BFL file, native folder, Megatron checkpoint."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from .manifest import MANIFEST_NAME, describe_file
from .native_view import layout_links
from .publish import published_folder, require_absent, sync_folder
from .safetensors_file import TensorInfo, storage_order, write_safetensors
from .sources import (
    ARCHITECTURE_KEY,
    DIFFUSERS_CLASS,
    DIFFUSERS_NUMBERS,
    NATIVE_FORMAT,
    architecture_to_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import Tensor

    from mxflux.flux.architecture import FluxArchitecture

    from .casting import View
    from .links import Link
    from .manifest import Manifest

LAYOUTS = ("diffusers", "bfl", NATIVE_FORMAT, "megatron")
DEFAULT_SHARD_BYTES = 10_000_000_000
_STEMS = {"diffusers": "diffusion_pytorch_model", NATIVE_FORMAT: "model"}
_DIFFUSERS_CONSTANTS = {
    "theta": 10000,
    "model_channels": 256,
    "add_qkv_bias": True,
    "single_block_bias": True,
}


def check_target(layout: str, arch: FluxArchitecture) -> None:
    """Raise ValueError listing the fields that ``layout`` cannot express."""
    needed: dict[str, Any] = {}
    if layout == "diffusers":
        needed = {**_DIFFUSERS_CONSTANTS, "ffn_hidden_size": 4 * arch.hidden_size}
    elif layout == "bfl":
        needed = {"add_qkv_bias": True, "single_block_bias": True, "patch_size": 1}
    problems = [
        f"{name}={getattr(arch, name)!r}, {layout} only has {value!r}"
        for name, value in needed.items()
        if getattr(arch, name) != value
    ]
    if problems:
        raise ValueError("; ".join(problems))


def write_target(
    layout: str,
    destination: Path,
    arch: FluxArchitecture,
    view: View,
    manifest: Manifest,
    max_shard_bytes: int,
) -> None:
    """Write ``view`` in ``layout`` at ``destination`` and fill ``manifest``."""
    if layout == "megatron":
        from .torch_dist import write_torch_dist

        write_torch_dist(destination, view, manifest)
        return
    writer = _Writer(layout_links(layout, arch), view, manifest)
    if layout == "bfl":
        _write_file(destination, arch, writer)
    else:
        _write_folder(layout, destination, arch, writer, max_shard_bytes)


class _Writer:
    """Foreign tensors in link order, recorded in the manifest as they pass."""

    def __init__(self, links: list[Link], view: View, manifest: Manifest) -> None:
        self.view = view
        self.manifest = manifest
        self.links = {name: link for link in links for name in link.foreign}
        shapes = {name: info.shape for name, info in view.tensors.items()}
        self.tensors: dict[str, TensorInfo] = {}
        for link in links:
            dtypes = {view.tensors[name].dtype for name in link.native}
            if len(dtypes) > 1:
                raise ValueError(f"mixed dtypes in {', '.join(link.native)} cannot be joined")
            for name, shape in link.foreign_shapes(shapes).items():
                self.tensors[name] = TensorInfo(shape, next(iter(dtypes)))

    def data(self, names: list[str]) -> Iterator[tuple[str, Tensor]]:
        """The named tensors, in this order."""
        moved: dict[str, Tensor] = {}
        for name in names:
            if name not in moved:
                link = self.links[name]
                native = tuple(self.view.load(part) for part in link.native)
                moved = dict(zip(link.foreign, link.to_foreign(native), strict=True))
            self.manifest.add(name, moved[name])
            yield name, moved[name]

    def write(
        self, path: Path, names: list[str], metadata: dict[str, str], recorded_as: str | None = None
    ) -> None:
        """Write one safetensors file and record it in the manifest."""
        tensors = {name: self.tensors[name] for name in names}
        write_safetensors(path, tensors, self.data(storage_order(tensors)), metadata)
        self.manifest.files[recorded_as or path.name] = describe_file(path)


def _write_file(destination: Path, arch: FluxArchitecture, writer: _Writer) -> None:
    if destination.suffix != ".safetensors":
        raise ValueError(f"{destination}: a BFL checkpoint is one file named *.safetensors")
    record = destination.with_name(f"{destination.name}.{MANIFEST_NAME}")
    require_absent(destination)
    destination.parent.mkdir(parents=True, exist_ok=True)
    metadata = {ARCHITECTURE_KEY: json.dumps(architecture_to_json(arch))}
    scratch = destination.with_name(f".{destination.name}.partial-{os.getpid()}")
    try:
        writer.write(scratch, list(writer.tensors), metadata, recorded_as=destination.name)
        scratch_record = scratch.with_name(f"{scratch.name}.manifest")
        writer.manifest.write(scratch_record)
        scratch_record.replace(record)
        scratch.rename(destination)
    finally:
        scratch.unlink(missing_ok=True)
    sync_folder(destination.parent)


def _write_folder(
    layout: str, destination: Path, arch: FluxArchitecture, writer: _Writer, max_shard_bytes: int
) -> None:
    stem = _STEMS[layout]
    shards = _plan_shards(writer, max_shard_bytes)
    with published_folder(destination) as scratch:
        weight_map: dict[str, str] = {}
        for number, names in enumerate(shards, start=1):
            one = f"{stem}.safetensors"
            part = f"{stem}-{number:05d}-of-{len(shards):05d}.safetensors"
            file = one if len(shards) == 1 else part
            writer.write(scratch / file, names, {"format": "pt"})
            weight_map.update(dict.fromkeys(names, file))
        if len(shards) > 1:
            total = sum(info.nbytes for info in writer.tensors.values())
            index = {"metadata": {"total_size": total}, "weight_map": weight_map}
            _write_json(scratch / f"{stem}.safetensors.index.json", index, writer.manifest)
        _write_json(scratch / "config.json", _config(layout, arch), writer.manifest)
        writer.manifest.write(scratch / MANIFEST_NAME)


def _plan_shards(writer: _Writer, max_shard_bytes: int) -> list[list[str]]:
    """Whole links a shard, as many as fit; a link larger than a shard gets its own."""
    shards: list[list[str]] = [[]]
    used = 0
    for link in dict.fromkeys(writer.links.values()):
        size = sum(writer.tensors[name].nbytes for name in link.foreign)
        if shards[-1] and used + size > max_shard_bytes:
            shards.append([])
            used = 0
        shards[-1] += link.foreign
        used += size
    return shards


def _write_json(path: Path, value: dict[str, Any], manifest: Manifest) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    manifest.files[path.name] = describe_file(path)


def _config(layout: str, arch: FluxArchitecture) -> dict[str, Any]:
    if layout == NATIVE_FORMAT:
        return {"format": NATIVE_FORMAT, "architecture": architecture_to_json(arch)}
    sizes = {theirs: getattr(arch, ours) for theirs, ours in DIFFUSERS_NUMBERS.items()}
    return {
        "_class_name": DIFFUSERS_CLASS,
        **sizes,
        "attention_head_dim": arch.head_dim,
        "out_channels": None if arch.out_channels == arch.in_channels else arch.out_channels,
        "axes_dims_rope": list(arch.axes_dim),
    }
