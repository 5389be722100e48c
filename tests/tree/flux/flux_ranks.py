# SPDX-License-Identifier: Apache-2.0
"""What the multi-rank tests run on each rank (see support.ranks)."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flux_tiny as tiny
import torch
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.core import CheckpointingException
from megatron.core.dist_checkpointing.mapping import ShardedTensor
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

from mxflux.checkpoint.background import AsyncSaves
from mxflux.checkpoint.distributed import load_checkpoint, save_checkpoint
from mxflux.checkpoint.errors import CheckpointError
from mxflux.checkpoint.model_state import load_model_state
from mxflux.flux.model import FluxModel

if TYPE_CHECKING:
    from collections.abc import Callable


def start(tensor_parallel: int = 1) -> None:
    """Initialize Megatron's groups and generators."""
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=tensor_parallel)
    model_parallel_cuda_manual_seed(123)


def run(model: FluxModel) -> torch.Tensor:
    """Forward on the tiny inputs."""
    out: torch.Tensor = model(**tiny.cast(tiny.inputs(), torch.float32))
    return out


def gradients(fields: dict[str, Any]) -> dict[str, Any]:
    """Output, gradients and number of core attention calls of a tiny model."""
    if not parallel_state.model_parallel_is_initialized():
        start()
    model = tiny.model(**fields)
    calls: list[int] = []
    for layer in model.transformer.layers:
        layer.self_attention.core_attention.register_forward_pre_hook(lambda *_: calls.append(1))
    out = run(model)
    out.square().sum().backward()
    grads = {name: p.grad for name, p in model.named_parameters()}
    return {"output": out.detach(), "grads": grads, "calls": len(calls)}


def each_gradients(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """:func:`gradients` of several configs in one process."""
    return [gradients(fields) for fields in cases]


def sharded_gradients(tensor_parallel: int) -> dict[str, Any]:
    """Output, gradients and partition dimensions on one tensor-parallel rank."""
    start(tensor_parallel)
    model = FluxModel(tiny.config(tensor_model_parallel_size=tensor_parallel))
    rank = parallel_state.get_tensor_model_parallel_rank()
    tiny.load_shards(model, tiny.full_state(), rank, tensor_parallel)
    out = run(model)
    out.square().sum().backward()
    parameters = dict(model.named_parameters())
    partition = {
        name: p.partition_dim if getattr(p, "tensor_model_parallel", False) else None
        for name, p in parameters.items()
    }
    grads = {name: p.grad for name, p in parameters.items()}
    return {"output": out.detach(), "grads": grads, "partition": partition}


def save_and_reshard(root: str) -> dict[str, Any]:
    """Save on TP 2, load on TP 2 and TP 1, save on TP 1 (DP 2), load on TP 2."""
    folder = Path(root)
    start(2)
    _save(folder, 3, 2)
    out: dict[str, Any] = {"2 to 2": _wrong(folder / "iter_0000003", 2)}
    out["again"] = _error(lambda: _save(folder, 3, 2))
    _restart(1)
    out["2 to 1"] = _wrong(folder / "iter_0000003", 1)
    _save(folder, 4, 1)
    _restart(2)
    out["1 to 2"] = _wrong(folder / "iter_0000004", 2)
    _save_in_background(folder, 5, 2)
    out["saved in the background"] = _wrong(folder / "iter_0000005", 2)
    return out


def refusals(cases: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """What load says about several folders and configs."""
    start()
    return [_error(lambda: _load_as(Path(path), **fields)) for path, fields in cases]  # noqa: B023


def load_converted(folder: str) -> list[str]:
    """Names that differ after loading a converted checkpoint on this many TP ranks."""
    world = torch.distributed.get_world_size()
    start(world)
    return _wrong(Path(folder), world)


def sharded_keys() -> dict[str, Any]:
    """Key -> (prepended axes, global shape); and what homogeneous keys would lead to."""
    start()
    model = _known(1)
    tensors = [v for v in model.sharded_state_dict().values() if isinstance(v, ShardedTensor)]
    model.config.hetereogenous_dist_checkpoint = False
    with tempfile.TemporaryDirectory() as scratch:
        homogeneous = _error(lambda: dist_checkpointing.save(model.sharded_state_dict(), scratch))
    keys = {tensor.key: (tensor.prepend_axis_num, tensor.global_shape) for tensor in tensors}
    return {"keys": keys, "homogeneous": homogeneous}


def _restart(tensor_parallel: int) -> None:
    parallel_state.destroy_model_parallel()
    start(tensor_parallel)


def _save(root: Path, iteration: int, tensor_parallel: int) -> None:
    model = _known(tensor_parallel)
    save_checkpoint(root, iteration, model.sharded_state_dict(), model.config.architecture)


def _save_in_background(root: Path, iteration: int, tensor_parallel: int) -> None:
    model = _known(tensor_parallel)
    saves = AsyncSaves()
    saves.start(root, iteration, model.sharded_state_dict(), model.config.architecture)
    assert saves.close() == [root / f"iter_{iteration:07d}"]


def _wrong(folder: Path, tensor_parallel: int) -> list[str]:
    """Parameters that a fresh model has not got right after loading."""
    model = FluxModel(tiny.config(tensor_model_parallel_size=tensor_parallel))
    for parameter in model.parameters():
        parameter.data.fill_(float("nan"))
    load_model_state(model, load_checkpoint(folder, model.sharded_state_dict()))
    pairs = zip(model.named_parameters(), _known(tensor_parallel).parameters(), strict=True)
    return [name for (name, a), b in pairs if not torch.equal(a, b)]


def _load_as(folder: Path, dtype: str = "float32", **fields: Any) -> None:
    arch = replace(tiny.ARCHITECTURE, **fields)
    model = FluxModel(tiny.config(**{name: getattr(arch, name) for name in fields}))
    load_checkpoint(folder, model.to(getattr(torch, dtype)).sharded_state_dict())


def _error(action: Callable[[], object]) -> str:
    try:
        action()
    except (CheckpointError, CheckpointingException, OSError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def _known(tensor_parallel: int) -> FluxModel:
    model = FluxModel(tiny.config(tensor_model_parallel_size=tensor_parallel))
    rank = parallel_state.get_tensor_model_parallel_rank()
    tiny.load_shards(model, tiny.full_state(), rank, tensor_parallel)
    return model


def gated(modes: dict[str, str], dtype: str) -> dict[str, Any]:
    """Output, gradients and gate reports with the real kernels (in Triton's interpreter)."""
    if not parallel_state.model_parallel_is_initialized():
        start()
    model = tiny.model(**modes).to(getattr(torch, dtype))
    out = model(**tiny.cast(tiny.inputs(), getattr(torch, dtype)))
    out.float().square().sum().backward()
    model.fusion_gates.require_engaged()
    grads = {name: p.grad for name, p in model.named_parameters()}
    engaged = {(r.key, r.place): r.engaged for r in model.fusion_gates.report()}
    return {"output": out.detach(), "grads": grads, "engaged": engaged}


def each_gated(cases: list[tuple[dict[str, str], str]]) -> list[dict[str, Any]]:
    """:func:`gated` for several gates and dtypes in one process."""
    return [gated(modes, dtype) for modes, dtype in cases]
