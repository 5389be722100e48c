# SPDX-License-Identifier: Apache-2.0
"""What the multi-rank tests run on each rank (see support.ranks)."""

from __future__ import annotations

from typing import Any

import flux_tiny as tiny
import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from mxflux.flux.model import FluxModel


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
