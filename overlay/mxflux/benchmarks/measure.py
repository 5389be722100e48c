# SPDX-License-Identifier: Apache-2.0
"""One variant at one batch, built, warmed up, timed and profiled in this process."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import torch

from mxflux.benchmarks import peers, variants
from mxflux.benchmarks.options import batches, workload
from mxflux.benchmarks.results import Measured
from mxflux.benchmarks.timeline import record
from mxflux.benchmarks.variants import VARIANTS, Variant

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

MATRIX = 8192
"""Side of the matrix product that measures the peak."""


def measured_here(options: argparse.Namespace) -> Measured:
    """One variant at one batch, in this process."""
    variant, (batch,) = VARIANTS[options.worker], batches(options)
    if variant.peer:
        return measure(options, variant, batch)
    with prepare_megatron(options.device):
        return measure(options, variant, batch)


def prepare_megatron(device: str) -> Any:
    """A context in which Megatron-core imports and has its groups, in one process."""
    from mxflux.training.process import started_process

    stack = contextlib.ExitStack()
    name = "cpu" if device == "cpu" else ("mi355x" if torch.version.hip else "h200")
    sys.modules.setdefault("transformer_engine", None)  # type: ignore[arg-type]  the local spec
    stack.enter_context(
        started_process(name, transformer_impl="local", backend="gloo", timeout_minutes=5)
    )
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    parallel_state.initialize_model_parallel()
    model_parallel_cuda_manual_seed(1)
    return stack


def measure(options: argparse.Namespace, variant: Variant, batch: int) -> Measured:
    """Build a variant, warm it up, time it, profile one step."""
    work = workload(options, batch)
    torch.manual_seed(0)
    if work.device.type == "cuda":
        # its backward faulted here with two versions of cuDNN on one machine (torch 2.11)
        torch.backends.cuda.enable_cudnn_sdp(False)
    model = variants.build(
        variant, work, precision=options.precision, backend=options.gemm_backend,
        recompute=options.recompute,
    )  # fmt: skip
    if variant.peer and options.recompute:
        peers.peer(variant.peer).recompute(model)
    if variant.peer and variant.compiled:
        peers.peer(variant.peer).compile_blocks(model)
    run = variants.forward(variant, model, work)
    once = variants.step(model, run, train=options.mode == "train")
    for _ in range(3):
        once()
    if options.fill_cache:
        return Measured(variant.name, batch)
    gates = getattr(model, "fusion_gates", None)
    if gates is not None and not variant.compiled:
        gates.require_engaged()
    times = _times(once, options.repeats, work.device)
    forwards = _times(_without_grad(run), 3, work.device)
    memory = torch.cuda.max_memory_allocated() / 2**30 if work.device.type == "cuda" else 0.0
    return Measured(
        variant.name, batch, statistics.median(times), statistics.median(forwards), times, memory,
        sum(p.numel() for p in model.parameters()), record(once, work.device),
        _engaged(gates) if variant.fused else {},
    )  # fmt: skip


def _engaged(gates: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for report in gates.report():
        counts[report.key] = counts.get(report.key, 0) + report.engaged
    return counts


def _without_grad(run: Callable[[], torch.Tensor]) -> Callable[[], None]:
    def once() -> None:
        with torch.no_grad():
            run()

    return once


def _times(call: Callable[[], None], repeats: int, device: torch.device) -> list[float]:
    """Milliseconds of each call, one after the other as in training: nothing waits in between."""
    if device.type != "cuda":
        return [_wall(call) for _ in range(repeats)]
    call()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]


def _wall(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def peaks(device: str) -> tuple[float, float]:
    """Measured TFLOP/s of a bf16 matrix product, and bytes a second of a copy; 0 on the CPU."""
    if device == "cpu":
        return 0.0, 0.0
    from mxflux.fusions import timing

    a, b = (torch.randn(MATRIX, MATRIX, device=device, dtype=torch.bfloat16) for _ in range(2))
    found = 2 * MATRIX**3 / timing.device_time(lambda: a @ b) / 1e6, timing.copy_bandwidth()
    timing._flush_buffer.cache_clear()
    return found
