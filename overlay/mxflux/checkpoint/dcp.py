# SPDX-License-Identifier: Apache-2.0
"""Torch distributed checkpoints on one process: tensors read and written one at a time."""

from __future__ import annotations

import io
import json
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from .errors import CheckpointError
from .metadata_file import read_metadata_file
from .safetensors_file import TensorInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor
    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import WriteItem

_ON_DISK = {"sharded_backend": "torch_dist", "sharded_backend_version": 1}
_COMMON = {"common_backend": "torch", "common_backend_version": 1}


class _CachedReader(FileSystemReader):
    """Reads the metadata file once, however many tensors are loaded."""

    _metadata: Metadata | None = None

    def read_metadata(self, *_args: Any, **_kwargs: Any) -> Metadata:
        """The checkpoint's metadata."""
        if self._metadata is None:
            self._metadata = read_metadata_file(Path(self.path))
        return self._metadata


class DistributedTensors:
    """Tensors of a torch_dist folder, each assembled from its shards when it is loaded.

    Raises CheckpointError naming the folder when it has no readable metadata.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader = _CachedReader(path)
        entries = self._reader.read_metadata().state_dict_metadata
        self.tensors = {
            name: TensorInfo(tuple(entry.size), entry.properties.dtype)
            for name, entry in entries.items()
            if isinstance(entry, TensorStorageMetadata)
        }
        self.objects = frozenset(entries) - frozenset(self.tensors)
        """Names of what is stored as pickled bytes: extra state, generators, iterators."""

    def load(self, name: str) -> Tensor:
        """The whole tensor."""
        info = self.tensors[name]
        state = {name: torch.empty(info.shape, dtype=info.dtype)}
        try:
            with _single_process():
                dcp.load(state, storage_reader=self._reader, no_dist=True)
        except CheckpointException as error:  # a BaseException: nothing else would catch it
            causes = "; ".join(str(failure[0]) for failure in error.failures.values())
            raise CheckpointError(f"{self.path}: tensor {name}: not readable ({causes})") from error
        return state[name]


class _StreamingPlanner(DefaultSavePlanner):
    """Plans from empty tensors and fetches each one's values when it is written."""

    def __init__(self, fetch: Callable[[str], Tensor]) -> None:
        super().__init__(dedup_save_to_lowest_rank=True)
        self._fetch = fetch

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """Values of an item about to be written."""
        return self._fetch(write_item.index.fqn)


def write_distributed(
    folder: Path, tensors: dict[str, TensorInfo], fetch: Callable[[str], Tensor]
) -> None:
    """Write a torch_dist checkpoint that Megatron loads on any number of ranks.

    ``fetch`` is called once for each tensor, in order. One data file; nothing but model weights.
    """
    state = {
        name: torch.empty(info.shape, dtype=info.dtype, device="meta")
        for name, info in tensors.items()
    }
    writer = FileSystemWriter(folder, single_file_per_rank=True, sync_files=True, thread_count=1)
    planner = _StreamingPlanner(fetch)
    with _single_process():
        dcp.save(state, storage_writer=writer, planner=planner, no_dist=True)
    torch.save({}, folder / "common.pt")
    (folder / "metadata.json").write_text(json.dumps({**_ON_DISK, **_COMMON}), encoding="utf-8")


@contextmanager
def _single_process() -> Iterator[None]:
    """Silence torch's notice that no process group takes part, which is what no_dist asks for."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def stored_as(path: Path) -> dict[str, Any]:
    """Megatron's metadata.json; raises CheckpointError for a backend that is not torch_dist."""
    file = path / "metadata.json"
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{file}: not JSON ({error})") from error
    if values.get("sharded_backend") != "torch_dist":
        raise CheckpointError(
            f"{file}: sharded_backend is {values.get('sharded_backend')!r}, only torch_dist is read"
        )
    return dict(values)
