# SPDX-License-Identifier: Apache-2.0
"""Times of every op and of what it is compared with."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch

from fusion_bench.checks import first_line
from fusion_bench.ops import DEVICE, OPS, Op
from fusion_bench.report import Report, Result
from mxflux.fusions import timing


def time_both(report: Report, op: Op, name: str, run: Any, seq: int, batch: int) -> None:
    """Forward with gradients on, then backward."""
    inputs, table = op.inputs(seq, batch)
    leaves = [t.detach().requires_grad_() for t in inputs]
    outputs = run(*leaves, table)
    grads = [torch.randn_like(o) for o in outputs]
    forward = timing.device_time(lambda: run(*leaves, table))
    backward = timing.device_time(
        lambda: torch.autograd.grad(outputs, leaves, grads, retain_graph=True)
    )
    for direction, measured, least in (
        ("forward", forward, op.forward_bytes(seq, batch)),
        ("backward", backward, op.backward_bytes(seq, batch)),
    ):
        floor = least / report.copy_bandwidth * 1e6
        report.results.append(
            Result(op.name, seq, batch, direction, name, measured, least, floor, floor / measured)
        )


def time_or_skip(report: Report, op: Op, name: str, run: Any, seq: int, batch: int) -> None:
    """A peer that cannot run here is listed as skipped; ours must run."""
    try:
        time_both(report, op, name, run, seq, batch)
    except RuntimeError as error:
        if name == "fused":
            raise
        report.skipped.append(f"{op.name} {seq}x{batch}: {name}: {first_line(error)}")


def time_compiled(report: Report, op: Op, seq: int, batch: int) -> None:
    """The chain under torch.compile, both directions."""
    torch._dynamo.reset()
    run = torch.compile(op.chain, mode="max-autotune-no-cudagraphs", dynamic=False)
    time_or_skip(report, op, "torch.compile", run, seq, batch)


def measure_enqueue(report: Report) -> None:
    """Host microseconds a call on small tensors: forward, backward, and the registered op."""
    for op in OPS:
        for name, call in enqueue_calls(op).items():
            report.enqueue[f"{op.name}: {name}"] = timing.enqueue_time(call)
    x = torch.randn(64, device=DEVICE, requires_grad=True)
    y, g = x * 2, torch.ones(64, device=DEVICE)
    report.enqueue["autograd.grad of one multiplication, for scale"] = timing.enqueue_time(
        lambda: torch.autograd.grad(y, x, g, retain_graph=True)
    )


def enqueue_calls(op: Op) -> dict[str, Any]:
    """What the host time of one op is made of."""
    inputs, table = op.inputs(16, 1)
    leaves = [t.detach().requires_grad_() for t in inputs]
    outputs = op.run(*leaves, table)
    grads = [torch.randn_like(o) for o in outputs]
    return {
        "forward, no grad": lambda: op.run(*inputs, table),
        "forward, grad": lambda: op.run(*leaves, table),
        "backward, autograd.grad": lambda: torch.autograd.grad(
            outputs, leaves, grads, retain_graph=True
        ),
        "forward through the registered op, grad": lambda: op.registered(*leaves, table),
    }


class Clock:
    """Seconds since the start and since the last lap, told on stderr."""

    def __init__(self) -> None:
        self.start = self.last = time.monotonic()

    def total(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    def lap(self, report: Report, name: str) -> None:
        """Note what the part that ends now took."""
        now = time.monotonic()
        report.seconds[name] = round(now - self.last, 1)
        print(f"{name}: {now - self.last:.1f} s", file=sys.stderr, flush=True)
        self.last = now
