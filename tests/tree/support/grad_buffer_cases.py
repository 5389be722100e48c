# SPDX-License-Identifier: Apache-2.0
"""DDP with and without defer_grad_buffer_zero, in many configurations, on gloo ranks."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch

from mxflux.megatron import grad_buffer
from support.grad_buffer_model import WIDTH, Zoo
from support.grad_buffer_mutants import MUTANTS

STEPS = 6
LOCAL_FP32 = {"param_name_patterns_for_fp32_local_accumulation": ("*up.*", "used_*")}
Trace = list[dict[str, str]]


@dataclass(frozen=True)
class Case:
    """One way to run DDP."""

    overlap: bool
    distributed_optimizer: bool
    fp32: bool
    microbatches: int
    local_fp32: bool = False  # fp32 main_grad next to a bf16 buffer, for some parameters
    instances: int = 1  # of the distributed optimizer

    def __str__(self) -> str:
        names = ("overlap", "distributed_optimizer", "fp32", "local_fp32")
        said = [name for name in names if getattr(self, name)]
        return "-".join([*said, f"{self.microbatches} microbatches", f"{self.instances} instances"])


_FLAGS = (False, True)
_ALL = itertools.product(_FLAGS, _FLAGS, _FLAGS, (1, 3), _FLAGS)
CASES = [Case(*values) for values in _ALL if not (values[2] and values[4])]
INSTANCES = [Case(overlap, True, False, 3, instances=2) for overlap in _FLAGS]
MUTANT_CASES = [Case(overlap, True, False, 3) for overlap in _FLAGS]


def wrap(module: torch.nn.Module, *, defer: bool, **settings: Any) -> Any:
    """``module`` in Megatron's DDP."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.transformer.transformer_config import TransformerConfig

    config = TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1)
    if defer:  # so that the stock upstream can run the other half
        settings["defer_grad_buffer_zero"] = True
    return DistributedDataParallel(config, DistributedDataParallelConfig(**settings), module)


def run(case: Case, *, defer: bool) -> Trace:
    """Digest of every buffer and gradient after each step, from the same seeds."""
    torch.manual_seed(3)
    net = Zoo(every=case.overlap)
    ddp = wrap(
        net,
        defer=defer,
        grad_reduce_in_fp32=case.fp32,
        overlap_grad_reduce=case.overlap,
        use_distributed_optimizer=case.distributed_optimizer,
        num_distributed_optimizer_instances=case.instances,
        bucket_size=700 if case.overlap else None,
        check_for_nan_in_grad=True,
        delay_wgrad_compute=True,
        **(LOCAL_FP32 if case.local_fp32 else {}),
    )
    generator = torch.Generator().manual_seed(100 + torch.distributed.get_rank())
    return [_step(case, ddp, net, step, generator) for step in range(STEPS)]


def _step(case: Case, ddp: Any, net: Zoo, step: int, generator: torch.Generator) -> dict[str, str]:
    ddp.zero_grad_buffer()
    if step == 2:  # twice in a row, as around an evaluation
        ddp.zero_grad_buffer()
    if step == 4:  # an iteration that is thrown away, as the rerun state machine does
        with ddp.no_sync():
            _backward(ddp, net, step, torch.ones(4, WIDTH))
        ddp.zero_grad_buffer()
    for microbatch in range(case.microbatches):
        last = microbatch == case.microbatches - 1
        with contextlib.nullcontext() if last else ddp.no_sync():
            _backward(ddp, net, step, torch.randn(4, WIDTH, generator=generator))
    ddp.finish_grad_sync(force_all_reduce=step == 3)
    trace = _digests(ddp, net)
    with torch.no_grad():
        for param in net.parameters():
            if param.requires_grad:
                param.sub_(param.main_grad.to(param.dtype), alpha=0.05)
    if step == 2:
        _poison(ddp, net)
    return trace


def _backward(ddp: Any, net: Zoo, step: int, x: torch.Tensor) -> None:
    ddp(x.bfloat16().requires_grad_(), step).float().pow(2).mean().backward()
    net.delayed.backward_dw()


def _poison(ddp: Any, net: Zoo) -> None:
    """Leave NaN where the next iteration must find zeros: unused gradients, and padding."""
    net.sometimes.weight.main_grad.fill_(float("nan"))
    for buffer in ddp.buffers + ddp.expert_parallel_buffers:
        buffer.grad_data[_is_padding(buffer)] = float("nan")


def _is_padding(buffer: Any) -> torch.Tensor:
    padding = torch.ones(buffer.numel, dtype=torch.bool)
    for start, end, _ in buffer.param_index_map.values():
        padding[start:end] = False
    return padding


def _digests(ddp: Any, net: Zoo) -> dict[str, str]:
    """Bits of every buffer, its padding and every main_grad: -0.0 differs from 0.0 here."""
    tensors = {}
    for index, buffer in enumerate(ddp.buffers + ddp.expert_parallel_buffers):
        tensors[f"buffer {index}"] = buffer.grad_data
        padding = buffer.grad_data[_is_padding(buffer)]
        tensors[f"padding {index} ({'zero' if not padding.any() else 'not zero'})"] = padding
    grads = {name: param.main_grad for name, param in net.named_parameters() if param.requires_grad}
    return {
        name: hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy()).hexdigest()
        for name, tensor in {**tensors, **grads}.items()
    }


def outcome(case: Case, *, defer: bool) -> Trace | str:
    """What ``run`` returned, or its error as "Type: message"."""
    try:
        return run(case, defer=defer)
    except Exception as error:  # noqa: BLE001  the outcome under test
        return f"{type(error).__name__}: {error}"


def differences(case: Case, reference: Trace | str) -> str:
    """Where the deferral leaves other bits than the zero fill, or an error; "" if nowhere."""
    if isinstance(reference, str):
        return f"the zero fill: {reference}"
    deferred = outcome(case, defer=True)
    if isinstance(deferred, str):
        return deferred
    found = [
        f"step {step}: {name}"
        for step, (stock, ours) in enumerate(zip(reference, deferred, strict=True))
        for name in sorted(stock.keys() | ours.keys())
        if stock.get(name) != ours.get(name)
    ]
    return ", ".join(found[:5])


def equivalence() -> dict[str, Any]:
    """Differences per case, and per mutant of the deferral in the cases that bring them out."""
    logging.disable(logging.CRITICAL)
    from megatron.core import parallel_state

    parallel_state.initialize_model_parallel()
    references = {case: outcome(case, defer=False) for case in CASES}
    traces = [reference for reference in references.values() if not isinstance(reference, str)]
    found: dict[str, Any] = {
        "cases": {str(case): differences(case, references[case]) for case in CASES},
        "padding": sorted({name for trace in traces for name in trace[-1] if "padding" in name}),
        "mutants": {},
    }
    for mutant in MUTANTS:
        with mock.patch.object(grad_buffer, "GradBufferDeferral", mutant):
            found["mutants"][mutant.__name__] = [
                differences(case, references[case]) for case in MUTANT_CASES
            ]
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(num_distributed_optimizer_instances=2)
    for case in INSTANCES:
        found["cases"][str(case)] = differences(case, outcome(case, defer=False))
    return found
