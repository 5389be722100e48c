# SPDX-License-Identifier: Apache-2.0
"""Megatron torch_dist checkpoints as a source and a target of conversion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .chunks import describe_folder
from .dcp import DistributedTensors, stored_as, write_distributed
from .errors import CheckpointError
from .manifest import MANIFEST_NAME, read_manifest
from .publish import published_folder
from .sources import Checkpoint, architecture_from_json

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from mxflux.flux.architecture import FluxArchitecture

    from .casting import View
    from .manifest import Manifest
    from .safetensors_file import TensorInfo

RANDOM_STATE = "random_state"
LOADER_STATE = "loader_state"
TRAINING_STATE = (
    "optimizer.",
    "chained_",
    RANDOM_STATE,
    LOADER_STATE,
    "rng_state",
    "rerun_state_machine_state",
)
"""Prefixes of what a training checkpoint holds beside the model (the last two: Megatron-LM's)."""


@dataclass(frozen=True)
class _ModelTensors:
    """The model's part of a checkpoint."""

    stored: DistributedTensors
    tensors: dict[str, TensorInfo]

    @property
    def all_tensors(self) -> dict[str, TensorInfo]:
        """The optimizer's, too."""
        return self.stored.tensors

    def load(self, name: str) -> Tensor:
        """One whole tensor."""
        return self.stored.load(name)


def is_training_state(name: str) -> bool:
    """Whether a stored name belongs to the optimizer or the run, not to the model."""
    return name.startswith(TRAINING_STATE)


def open_torch_dist(path: Path, architecture: FluxArchitecture | None) -> Checkpoint:
    """Open a Megatron checkpoint: its manifest tells the architecture, else the caller must.

    Raises CheckpointError when neither does, or when both do and differ.
    """
    stored_as(path)
    found = architecture
    if (path / MANIFEST_NAME).is_file():
        recorded = read_manifest(path / MANIFEST_NAME).architecture
        found = architecture_from_json(recorded, path / MANIFEST_NAME)
        if architecture is not None and architecture != found:
            raise CheckpointError(
                f"{path}: another architecture (checkpoint != asked for):",
                found.differences(architecture),
            )
    if found is None:
        raise CheckpointError(
            f"{path}: there is no {MANIFEST_NAME} to tell the architecture: give it"
        )
    stored = DistributedTensors(path)
    model = {name: t for name, t in stored.tensors.items() if not is_training_state(name)}
    return Checkpoint(path, "megatron", found, _ModelTensors(stored, model))


def write_torch_dist(destination: Path, view: View, manifest: Manifest) -> None:
    """Write native tensors as a Megatron checkpoint, recording each in ``manifest``."""

    def fetch(name: str) -> Tensor:
        tensor = view.load(name)
        manifest.add(name, tensor)
        return tensor

    with published_folder(destination) as scratch:
        write_distributed(scratch, view.tensors, fetch)
        for name, (file, pieces) in describe_folder(scratch).items():
            manifest.files[name] = file
            if pieces:
                manifest.chunks[name] = pieces
        manifest.write(scratch / MANIFEST_NAME)
