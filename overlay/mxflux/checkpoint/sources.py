# SPDX-License-Identifier: Apache-2.0
"""Checkpoints to read: which layout, which architecture, which tensors."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mxflux.flux.architecture import FluxArchitecture

from .errors import CheckpointError
from .infer import architecture_from_bfl
from .safetensors_file import SafetensorsFile, TensorInfo

if TYPE_CHECKING:
    from torch import Tensor

ARCHITECTURE_KEY = "mxflux.architecture"
NATIVE_FORMAT = "mxflux"
DIFFUSERS_CLASS = "FluxTransformer2DModel"
DIFFUSERS_NUMBERS = {
    "num_layers": "num_joint_layers",
    "num_single_layers": "num_single_layers",
    "num_attention_heads": "num_attention_heads",
    "in_channels": "in_channels",
    "patch_size": "patch_size",
    "joint_attention_dim": "context_dim",
    "pooled_projection_dim": "vec_in_dim",
    "guidance_embeds": "guidance_embed",
}
"""Keys of diffusers' config.json and the architecture fields they set."""


class TensorSource(Protocol):
    """Tensors by name: what they are, and their values on demand."""

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """Shape and dtype of each."""
        ...

    def load(self, name: str) -> Tensor:
        """The values of one."""
        ...


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint: layout "diffusers", "bfl", "mxflux" or "megatron"."""

    path: Path
    layout: str
    architecture: FluxArchitecture
    source: TensorSource


class SafetensorsSource:
    """The tensors of several safetensors files; no name may occur twice."""

    def __init__(self, paths: list[Path]) -> None:
        self.files = [SafetensorsFile(path) for path in paths]
        self._owner: dict[str, SafetensorsFile] = {}
        for file in self.files:
            for name in file.tensors:
                if name in self._owner:
                    raise CheckpointError(
                        f"tensor {name} is in {self._owner[name].path} and in {file.path}"
                    )
                self._owner[name] = file

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """Shape and dtype of each."""
        return {name: file.tensors[name] for name, file in self._owner.items()}

    def load(self, name: str) -> Tensor:
        """The values of one, mapped from its file."""
        return self._owner[name].load(name)


def open_checkpoint(path: Path, architecture: FluxArchitecture | None = None) -> Checkpoint:
    """Open a diffusers transformer folder, a BFL file, a native folder or a Megatron checkpoint.

    ``architecture`` is needed where the files do not say everything (a BFL file with a head
    width other than 128); where they do, it must agree.
    Raises CheckpointError when the layout is unknown, a file is damaged or the sizes disagree.
    """
    path = Path(path)
    if path.is_file():
        return _open_bfl(path, architecture)
    if (path / "metadata.json").is_file():
        from .torch_dist import open_torch_dist

        return open_torch_dist(path, architecture)
    config = _read_config(path)
    if config.get("format") == NATIVE_FORMAT:
        found = architecture_from_json(config["architecture"], path / "config.json")
        layout, stem = NATIVE_FORMAT, "model"
    elif config.get("_class_name") == DIFFUSERS_CLASS:
        found = architecture_from_diffusers(config, path / "config.json")
        layout, stem = "diffusers", "diffusion_pytorch_model"
    else:
        raise CheckpointError(
            f"{path / 'config.json'}: _class_name is {config.get('_class_name')!r}, "
            f"not {DIFFUSERS_CLASS!r}: this is not a Flux transformer"
        )
    _require_same(path, found, architecture)
    return Checkpoint(path, layout, found, SafetensorsSource(_shards(path, stem)))


def architecture_from_json(values: dict[str, Any], origin: Path) -> FluxArchitecture:
    """Architecture from its JSON form; raises CheckpointError naming ``origin`` and the key."""
    expected = set(FluxArchitecture.__dataclass_fields__)
    if set(values) != expected:
        raise CheckpointError(
            f"{origin}: the architecture has other keys: {sorted(set(values) ^ expected)}"
        )
    try:
        return FluxArchitecture(**{**values, "axes_dim": tuple(values["axes_dim"])})
    except ValueError as error:
        raise CheckpointError(f"{origin}: {error}") from error


def architecture_to_json(architecture: FluxArchitecture) -> dict[str, Any]:
    """JSON form of an architecture."""
    return {**asdict(architecture), "axes_dim": list(architecture.axes_dim)}


def architecture_from_diffusers(config: dict[str, Any], origin: Path) -> FluxArchitecture:
    """Architecture that diffusers' config.json describes; raises CheckpointError naming the key."""
    try:
        sizes = {ours: config[theirs] for theirs, ours in DIFFUSERS_NUMBERS.items()}
        hidden = config["attention_head_dim"] * config["num_attention_heads"]
        axes = tuple(config["axes_dims_rope"])
    except KeyError as error:
        raise CheckpointError(f"{origin}: key {error} is missing") from error
    out_channels = config.get("out_channels") or config["in_channels"]
    try:
        return FluxArchitecture(
            **sizes,
            hidden_size=hidden,
            ffn_hidden_size=4 * hidden,
            out_channels=out_channels,
            axes_dim=axes,
        )
    except ValueError as error:
        raise CheckpointError(f"{origin}: {error}") from error


def _read_config(path: Path) -> dict[str, Any]:
    if (path / "model_index.json").is_file():
        raise CheckpointError(
            f"{path}: this is a diffusers pipeline; give its transformer: {path / 'transformer'}"
        )
    try:
        config = json.loads((path / "config.json").read_text())
    except FileNotFoundError:
        raise CheckpointError(
            f"{path}: neither a file nor a folder with config.json or metadata.json"
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{path / 'config.json'}: not JSON ({error})") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path / 'config.json'}: not a JSON object")
    return config


def _shards(path: Path, stem: str) -> list[Path]:
    index = path / f"{stem}.safetensors.index.json"
    if not index.is_file():
        return [path / f"{stem}.safetensors"]
    weight_map = json.loads(index.read_text())["weight_map"]
    names = sorted(set(weight_map.values()))
    missing = [name for name in names if not (path / name).is_file()]
    if missing:
        raise CheckpointError(f"{index}: shards are missing:", missing)
    present = sorted(file.name for file in path.glob(f"{stem}-*.safetensors"))
    if present != names:
        extra = sorted(set(present) - set(names))
        raise CheckpointError(f"{index}: shards that it does not name:", extra)
    return [path / name for name in names]


def _open_bfl(path: Path, architecture: FluxArchitecture | None) -> Checkpoint:
    source = SafetensorsSource([path])
    recorded = source.files[0].metadata.get(ARCHITECTURE_KEY)
    if recorded is not None:
        found = architecture_from_json(json.loads(recorded), path)
        _require_same(path, found, architecture)
    else:
        found = architecture_from_bfl(source.tensors, path, architecture)
    return Checkpoint(path, "bfl", found, source)


def _require_same(path: Path, found: FluxArchitecture, expected: FluxArchitecture | None) -> None:
    if expected is not None and found != expected:
        raise CheckpointError(
            f"{path}: another architecture (checkpoint != asked for):", found.differences(expected)
        )
