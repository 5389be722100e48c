# SPDX-License-Identifier: Apache-2.0
"""Questions to a sharded state dict: what it asks for, how much it holds, what does not fit."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import (
    ShardedObject,
    ShardedTensor,
    ShardedTensorFactory,
)

from .safetensors_file import TensorInfo
from .together import gather
from .torch_dist import is_training_state

if TYPE_CHECKING:
    from collections.abc import Iterator

StateDict = dict[str, Any]


def local_bytes(state: StateDict) -> int:
    """Bytes that this rank writes: its main replicas."""
    return sum(
        prod(leaf.local_shape) * leaf.dtype.itemsize
        for leaf in sharded_tensors(state)
        if not any(_flat(leaf.replica_id))
    )


def sharded_tensors(state: StateDict) -> Iterator[ShardedTensor]:
    """All sharded tensors, those of factories built."""
    for value in nested_values(state):
        built = value.build() if isinstance(value, ShardedTensorFactory) else value
        leaves = nested_values(built) if isinstance(built, (dict, list)) else [built]
        yield from (leaf for leaf in leaves if isinstance(leaf, ShardedTensor))


def strict_problems(stored: dict[str, TensorInfo], state: StateDict, model_only: bool) -> list[str]:
    """Names asked for and not stored, stored and not asked for by any rank, and other dtypes."""
    wanted: dict[str, TensorInfo] = {}
    for part in gather(_requested(state)):
        wanted.update(part)
    if torch.distributed.get_rank() != 0:
        return []
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
    return problems + _bucket_hint(problems)


def without_absent_extra_state(state: StateDict, objects: frozenset[str]) -> StateDict:
    """The same nested dict without the extra states that the checkpoint does not have."""
    kept: StateDict = {}
    for key, value in state.items():
        if isinstance(value, dict):
            kept[key] = without_absent_extra_state(value, objects)
        elif not (
            isinstance(value, ShardedObject)
            and _is_extra_state(value.key)
            and value.unique_key not in objects
        ):
            kept[key] = value
    return kept


def _requested(state: StateDict) -> dict[str, TensorInfo]:
    return {
        leaf.key: TensorInfo(tuple(leaf.global_shape), leaf.dtype)
        for leaf in sharded_tensors(state)
        if not _is_extra_state(leaf.key)
    }


def _bucket_hint(problems: list[str]) -> list[str]:
    """dp_reshardable stores the gradient buckets as they are, so they must be the same again."""
    if not any(": optimizer.distributed." in problem for problem in problems):
        return []
    hint = (
        "hint: the optimizer state is stored in gradient buckets, which differ here: use the "
        "ddp_bucket_size and overlap_grad_reduce of the saved run, or save with "
        "optimizer_format: fully_reshardable"
    )
    return [hint]


def _is_extra_state(name: str) -> bool:
    return "_extra_state" in name


def _flat(replica_id: int | tuple[int, ...]) -> tuple[int, ...]:
    return (replica_id,) if isinstance(replica_id, int) else tuple(replica_id)
