# SPDX-License-Identifier: Apache-2.0
"""What is in a checkpoint, told from its metadata: no tensor is read."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from mxflux.flux.architecture import PRESETS

from .errors import CheckpointError
from .locate import locate
from .manifest import Manifest, read_manifest
from .safetensors_file import DTYPE_NAMES, TensorInfo
from .sources import architecture_to_json, open_checkpoint
from .torch_dist import is_training_state
from .verify import manifest_of

if TYPE_CHECKING:
    from pathlib import Path

    from mxflux.flux.architecture import FluxArchitecture


@dataclass(frozen=True)
class Summary:
    """A checkpoint at a glance."""

    path: Path
    layout: str
    architecture: FluxArchitecture
    weights: dict[str, TensorInfo]
    training_tensors: dict[str, TensorInfo]
    """The optimizer's."""
    manifest: Manifest | None
    files: dict[str, int]
    """Size of each file in bytes."""

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(prod(info.shape) for info in self.weights.values())

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "path": str(self.path),
            "layout": self.layout,
            "preset": preset_name(self.architecture),
            "architecture": architecture_to_json(self.architecture),
            "parameters": self.parameters,
            "weights": _totals(self.weights),
            "optimizer": _totals(self.training_tensors),
            "files": self.files,
            "manifest": self.manifest is not None,
            "training": self.manifest.training if self.manifest else None,
        }


def summarize(path: Path | str, architecture: FluxArchitecture | None = None) -> Summary:
    """Look at a checkpoint or at the latest of a run; raises CheckpointError when it is none."""
    path = locate(path)
    folder, record = manifest_of(path)
    manifest = read_manifest(record) if record.is_file() else None
    checkpoint = open_checkpoint(path, architecture)
    stored: dict[str, TensorInfo] = getattr(
        checkpoint.source, "all_tensors", checkpoint.source.tensors
    )
    names = manifest.files if manifest else {p.name: None for p in _files(path)}
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(f"{path}: files are missing:", missing)
    return Summary(
        path,
        checkpoint.layout,
        checkpoint.architecture,
        {name: info for name, info in stored.items() if not is_training_state(name)},
        {name: info for name, info in stored.items() if is_training_state(name)},
        manifest,
        {name: (folder / name).stat().st_size for name in sorted(names)},
    )


def preset_name(architecture: FluxArchitecture) -> str | None:
    """The preset with these sizes, None when there is none."""
    names = (name for name, preset in PRESETS.items() if preset == architecture)
    return next(names, None)


def _totals(tensors: dict[str, TensorInfo]) -> dict[str, Any]:
    dtypes: dict[str, int] = {}
    for info in tensors.values():
        name = DTYPE_NAMES[info.dtype]
        dtypes[name] = dtypes.get(name, 0) + info.nbytes
    return {"tensors": len(tensors), "bytes": sum(dtypes.values()), "bytes_by_dtype": dtypes}


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(p for p in path.iterdir() if p.is_file())
