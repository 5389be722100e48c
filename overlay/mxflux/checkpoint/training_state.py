# SPDX-License-Identifier: Apache-2.0
"""The sharded state dict of a whole training run."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import torch
from megatron.core import package_info, parallel_state
from megatron.core.dist_checkpointing.mapping import ShardedObject

from . import random_states
from .padded_buckets import padded_buckets
from .torch_dist import LOADER_STATE, RANDOM_STATE
from .training_record import OPTIMIZER_FORMATS, Layout, Progress, TrainingRecord

if TYPE_CHECKING:
    from torch import nn

    from .parts import TrainingParts
    from .sharded import StateDict


def record_of(parts: TrainingParts, progress: Progress, optimizer_format: str) -> TrainingRecord:
    """The record of a checkpoint of ``parts``.

    Raises ValueError for an unknown optimizer format, and for pipeline stages.
    """
    if optimizer_format not in OPTIMIZER_FORMATS:
        known = ", ".join(OPTIMIZER_FORMATS)
        raise ValueError(f"optimizer_format={optimizer_format!r} is unknown. Choose from: {known}.")
    return TrainingRecord(
        progress,
        current_layout(),
        optimizer_format if parts.optimizer is not None else None,
        held_by(parts),
        versions(),
    )


def current_layout() -> Layout:
    """The parallel sizes of this run; raises ValueError for pipeline stages."""
    pipeline = parallel_state.get_pipeline_model_parallel_world_size()
    if pipeline > 1:
        raise ValueError(
            f"pipeline-parallel size {pipeline}: Flux runs without pipeline parallelism, "
            "so there are no checkpoints of its stages"
        )
    return Layout(
        tensor=parallel_state.get_tensor_model_parallel_world_size(),
        pipeline=pipeline,
        context=parallel_state.get_context_parallel_world_size(),
        data=parallel_state.get_data_parallel_world_size(),
    )


def held_by(parts: TrainingParts) -> tuple[str, ...]:
    """What a checkpoint of ``parts`` has beside the model."""
    present = {
        "optimizer": parts.optimizer,
        "scheduler": parts.scheduler,
        "loader": parts.loader,
        "counter": parts.counter,
    }
    return (*(name for name, part in present.items() if part is not None), "random")


def versions() -> dict[str, str]:
    """Of what wrote, or reads, a checkpoint."""
    try:
        own = version("mxflux")
    except PackageNotFoundError:
        own = "not installed"
    return {
        "megatron-core": package_info.__version__,
        "torch": str(torch.__version__),
        "mxflux": own,
    }


def training_state(
    parts: TrainingParts, optimizer_format: str | None, *, is_loading: bool = False
) -> StateDict:
    """Model and optimizer, sharded; schedule and counter, the same on every rank.

    On loading, what is asked for; generators and loaders are added by :func:`rank_objects` on
    saving, and asked for by mxflux.checkpoint.restore.
    """
    metadata = _metadata(optimizer_format)
    model = unwrapped(parts.model).sharded_state_dict(metadata=metadata)
    state: StateDict = {"model": model}
    if parts.optimizer is not None:
        with padded_buckets(parts.optimizer):
            state["optimizer"] = parts.optimizer.sharded_state_dict(
                model, is_loading=is_loading, metadata=metadata
            )
    if not is_loading:
        state["common"] = _common(parts)
    return state


def rank_objects(parts: TrainingParts) -> StateDict:
    """What each rank keeps for itself: its generators, and its loader's position in the data."""
    objects = {RANDOM_STATE: random_object(random_states.collect())}
    if parts.loader is not None:
        data = parallel_state.get_data_parallel_world_size()
        index = parallel_state.get_data_parallel_rank()
        objects[LOADER_STATE] = loader_object(parts.loader.state_dict(), data, index)
    return objects


def random_object(states: Any = None) -> ShardedObject:
    """This rank's generators."""
    world, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    return ShardedObject(RANDOM_STATE, states, (world,), (rank,))


def loader_object(state: Any, data: int, index: int) -> ShardedObject:
    """The loader of a data-parallel rank; model-parallel ranks beside it have the same."""
    replica = (
        parallel_state.get_tensor_model_parallel_rank(),
        parallel_state.get_context_parallel_rank(),
        0,
    )
    return ShardedObject(LOADER_STATE, state, (data,), (index,), replica_id=replica)


def every_loader(data: int) -> dict[str, ShardedObject]:
    """The loaders of all ``data`` ranks of a saved run, asked for by every rank of this one."""
    replica = torch.distributed.get_rank()
    return {
        f"rank_{index}": ShardedObject(LOADER_STATE, None, (data,), (index,), replica_id=replica)
        for index in range(data)
    }


def unwrapped(model: nn.Module) -> Any:
    """The model inside DDP and precision wrappers."""
    inner: Any = model
    while hasattr(inner, "module"):
        inner = inner.module
    return inner


def _common(parts: TrainingParts) -> dict[str, Any]:
    common: dict[str, Any] = {}
    if parts.scheduler is not None:
        common["scheduler"] = parts.scheduler.state_dict()
    if parts.counter is not None:
        common["counter"] = {"training": parts.counter.training}
    return common


def _metadata(optimizer_format: str | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "chained_optim_avoid_prefix": True,
        "singleton_local_shards": False,
        "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True),
    }
    if optimizer_format is not None:
        metadata["distrib_optim_sharding_type"] = optimizer_format
    return metadata
