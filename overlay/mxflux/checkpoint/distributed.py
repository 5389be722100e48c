# SPDX-License-Identifier: Apache-2.0
"""Distributed checkpoints of a training run: all or nothing, with a manifest, strict on load."""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import (
    ShardedObject,
    ShardedTensor,
    ShardedTensorFactory,
)

from .dcp import DistributedTensors
from .errors import CheckpointError
from .manifest import MANIFEST_NAME, Manifest, TensorRecord, describe_file, read_manifest
from .publish import require_absent, sync_folder, sync_tree
from .safetensors_file import DTYPE_NAMES, TensorInfo
from .sources import architecture_to_json
from .torch_dist import is_training_state
from .tracker import (
    TRACKER,
    checkpoint_folder,
    final_iteration,
    read_tracker,
    write_tracker,
)
from .verify import extra_files, file_problems, metadata_problems

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from megatron.core.dist_checkpointing.strategies.async_utils import AsyncRequest

    from mxflux.flux.architecture import FluxArchitecture

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
StateDict = dict[str, Any]


def save_checkpoint(
    root: Path, iteration: int, state: StateDict, architecture: FluxArchitecture
) -> Path:
    """Save a sharded state dict as ``root``/iter_NNNNNNN and name it the latest.

    Called on every rank of the default group. The data are written into a scratch folder, every
    file is hashed and synced, the folder is renamed, then the tracker is replaced: whenever the
    job dies, the tracker names a complete checkpoint. Returns the folder.
    Raises on every rank what went wrong on any: FileExistsError for an existing iteration.
    """
    scratch = begin_save(root, iteration)
    dist_checkpointing.save(state, str(scratch))
    return finish_save(root, iteration, architecture)


def save_checkpoint_async(
    root: Path, iteration: int, state: StateDict, architecture: FluxArchitecture
) -> AsyncRequest:
    """The same in the background: a request for Megatron's AsyncCallsQueue.

    The checkpoint is published when the queue finalizes the request; a job that dies before
    leaves the tracker on the previous one.
    """
    scratch = begin_save(root, iteration)
    request = dist_checkpointing.save(
        state, str(scratch), async_sharded_save=True, async_strategy="mcore"
    )
    request.add_finalize_fn(lambda: finish_save(root, iteration, architecture))
    return request


def begin_save(root: Path, iteration: int) -> Path:
    """Make the scratch folder of a save, on rank 0, and return it on every rank.

    Raises FileExistsError on every rank when the iteration is there already.
    """
    final = checkpoint_folder(root, iteration)
    scratch = _scratch_folder(final)
    _on_rank_zero(lambda: _prepare(root, final, scratch))
    return scratch


def finish_save(root: Path, iteration: int, architecture: FluxArchitecture) -> Path:
    """Hash, record, sync, rename and name as the latest what a save has written."""
    final = checkpoint_folder(root, iteration)
    scratch = _scratch_folder(final)
    files = _hash_together(scratch)
    _on_rank_zero(lambda: _publish(scratch, final, files, architecture))
    _on_rank_zero(lambda: write_tracker(root, iteration))
    return final


def load_checkpoint(
    folder: Path,
    state: StateDict,
    *,
    verify_files: bool = True,
    model_only: bool = False,
) -> StateDict:
    """Load a checkpoint into the layout that ``state`` asks for, on any number of ranks.

    Every file is hashed (the ranks share the work), names, shapes and dtypes must agree exactly;
    only TransformerEngine's extra state may differ. ``model_only`` leaves training state in the
    checkpoint unread.
    Raises CheckpointError on every rank, listing all problems; nothing is loaded then.
    """
    manifest: Manifest = _everywhere(lambda: read_manifest(folder / MANIFEST_NAME))
    if verify_files:
        _raise_together(folder, _verify_share(folder, manifest))
    stored = _everywhere(lambda: DistributedTensors(folder))
    _raise_together(folder, metadata_problems(stored.tensors, manifest))
    _raise_together(folder, _strict_problems(stored.tensors, state, model_only))
    present = _without_absent_extra_state(state, stored.objects)
    loaded: StateDict = dist_checkpointing.load(present, str(folder))
    return loaded


def _scratch_folder(final: Path) -> Path:
    return final.with_name(f".{final.name}.partial")


def _prepare(root: Path, final: Path, scratch: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    if scratch.exists():
        shutil.rmtree(scratch)  # left by a run that died while saving this iteration
    if final.exists() and (root / TRACKER).exists() and read_tracker(root) < final_iteration(final):
        # A run died between rename and tracker, resumed from an earlier one and is here again.
        logger.warning("%s was never named as the latest: it is saved anew", final)
        final.rename(scratch)
        shutil.rmtree(scratch)
    require_absent(final)
    scratch.mkdir()


def _publish(
    scratch: Path, final: Path, files: dict[str, Any], architecture: FluxArchitecture
) -> None:
    stored = DistributedTensors(scratch).tensors
    tensors = {
        name: TensorRecord(list(info.shape), DTYPE_NAMES[info.dtype], None)
        for name, info in stored.items()
    }
    manifest = Manifest("megatron", architecture_to_json(architecture), tensors, files)
    manifest.write(scratch / MANIFEST_NAME)
    sync_tree(scratch)
    scratch.rename(final)
    sync_folder(final.parent)


def _hash_together(scratch: Path) -> dict[str, Any]:
    """Records of all files; each rank hashes its share."""
    share = {name: describe_file(scratch / name) for name in _share(_file_names(scratch))}
    merged: dict[str, Any] = {}
    for part in _gather(share):
        merged.update(part)
    return merged


def _verify_share(folder: Path, manifest: Manifest) -> list[str]:
    problems = file_problems(folder, manifest, _share(sorted(manifest.files)))
    if torch.distributed.get_rank() == 0:
        problems += extra_files(folder, manifest)
    return problems


def _strict_problems(
    stored: dict[str, TensorInfo], state: StateDict, model_only: bool
) -> list[str]:
    """Names asked for and not stored, stored and not asked for by any rank, and other dtypes."""
    wanted: dict[str, TensorInfo] = {}
    for part in _gather(_requested(state)):
        wanted.update(part)
    problems = [
        f"missing: {name} {info.shape}" for name, info in wanted.items() if name not in stored
    ]
    for name, info in stored.items():
        asked = wanted.get(name)
        if asked is None:
            if not (_is_extra_state(name) or (model_only and is_training_state(name))):
                problems.append(f"unexpected: {name} {info.shape}")
        elif asked.shape != info.shape:
            problems.append(f"shape: {name} is {info.shape}, expected {asked.shape}")
        elif asked.dtype != info.dtype:
            problems.append(f"dtype: {name} is {info.dtype}, expected {asked.dtype}")
    return problems if torch.distributed.get_rank() == 0 else []


def _requested(state: StateDict) -> dict[str, TensorInfo]:
    requested: dict[str, TensorInfo] = {}
    for value in nested_values(state):
        built = value.build() if isinstance(value, ShardedTensorFactory) else value
        leaves = nested_values(built) if isinstance(built, (dict, list)) else [built]
        for leaf in leaves:
            if isinstance(leaf, ShardedTensor) and not _is_extra_state(leaf.key):
                requested[leaf.key] = TensorInfo(tuple(leaf.global_shape), leaf.dtype)
    return requested


def _without_absent_extra_state(state: StateDict, objects: frozenset[str]) -> StateDict:
    """The same nested dict without the extra states that the checkpoint does not have."""
    kept: StateDict = {}
    for key, value in state.items():
        if isinstance(value, dict):
            kept[key] = _without_absent_extra_state(value, objects)
        elif not (
            isinstance(value, ShardedObject)
            and _is_extra_state(value.key)
            and value.unique_key not in objects
        ):
            kept[key] = value
    return kept


def _is_extra_state(name: str) -> bool:
    return "_extra_state" in name


def _file_names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def _share(names: list[str]) -> list[str]:
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    return names[rank::world]


def _gather(value: Result) -> list[Result]:
    gathered: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, value)
    return gathered


def _on_rank_zero(action: Callable[[], object]) -> None:
    """Run on rank 0; what it raises is raised everywhere, so that no rank waits for another."""
    _everywhere(action if torch.distributed.get_rank() == 0 else lambda: None)


def _everywhere(action: Callable[[], Result]) -> Result:
    """Run on every rank and raise the first error of any on all."""
    error: Exception | None = None
    result: Result | None = None
    try:
        result = action()
    except (OSError, ValueError) as caught:
        error = caught
    for other in _gather(None if error is None else (type(error), str(error))):
        if other is not None:
            raise error or _rebuilt(*other)
    return result  # type: ignore[return-value]  # an action that returned None is one of None


def _rebuilt(kind: type[Exception], text: str) -> Exception:
    return CheckpointError(text) if kind is CheckpointError else kind(text)


def _raise_together(folder: Path, problems: list[str]) -> None:
    found = [problem for part in _gather(problems) for problem in part]
    if found:
        raise CheckpointError(f"{folder}: {len(found)} problem(s):", found)
