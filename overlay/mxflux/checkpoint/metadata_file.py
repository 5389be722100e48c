# SPDX-License-Identifier: Apache-2.0
"""The .metadata pickle of a torch_dist checkpoint, read without Megatron and without trust."""

from __future__ import annotations

import pickle
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint import filesystem, metadata, planner

from .errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

METADATA = ".metadata"
_MODULES = {module.__name__: module for module in (filesystem, metadata, planner)}
_MEGATRON = "megatron.core.dist_checkpointing."


class _Inert:
    """Stands in for a class of Megatron's whose contents nobody here needs."""

    def __setstate__(self, state: Any) -> None:
        pass


class _MegatronMetadata(metadata.Metadata):
    """Megatron's Metadata: torch's, with plans that are not read."""


class _Unpickler(pickle.Unpickler):
    """Builds torch's metadata classes and nothing else: no other code can be named."""

    def find_class(self, module: str, name: str) -> Any:
        """The class of a name, when it is a harmless one."""
        if module.startswith(_MEGATRON):
            return _MegatronMetadata if name == "MCoreMetadata" else _Inert
        found = getattr(_MODULES.get(module), name, None)
        if isinstance(found, type):
            return found
        if module == "torch":
            found = getattr(torch, name, None)
            if found is torch.Size or isinstance(found, torch.dtype):
                return found
        if module.startswith("pathlib") and name in {"PosixPath", "WindowsPath"}:
            return PurePath  # where it was written: never opened
        if (module, name) == ("torch.serialization", "_get_layout"):
            return getattr(torch.serialization, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no checkpoint needs")


def read_metadata_file(folder: Path) -> metadata.Metadata:
    """Tensors, chunks and files of a torch_dist checkpoint.

    Megatron's own classes are not imported. Raises CheckpointError when the file is missing,
    damaged, or would run code that is none of torch's metadata classes.
    """
    path = folder / METADATA
    try:
        with path.open("rb") as file:
            found = _Unpickler(file).load()
    except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{folder}: no readable .metadata ({error})") from error
    except (AttributeError, IndexError, KeyError, TypeError, MemoryError) as error:
        raise CheckpointError(f"{folder}: no readable .metadata ({error!r})") from error
    if not isinstance(found, metadata.Metadata):
        raise CheckpointError(f"{path}: not the metadata of a checkpoint")
    return found
