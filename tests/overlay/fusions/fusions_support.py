# SPDX-License-Identifier: Apache-2.0
"""Inputs, guard bands and error measures of the fusion tests; selects the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import triton_interpreter  # noqa: F401  (before every kernel)

from mxflux.fusions.rope_table import RopeTable

Tensor = torch.Tensor
BF16 = torch.bfloat16
KINDS = ("random", "tiny", "huge", "offset", "outlier", "zero rows", "constant rows")


OVERLAY = Path(__file__).resolve().parents[3] / "overlay"


def run_python(*arguments: str, timeout: int = 300) -> subprocess.CompletedProcess[str]:
    """Run Python with mxflux importable and the interpreter off: what a compiler test needs."""
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    env["PYTHONPATH"] = f"{OVERLAY}{os.pathsep}{Path(__file__).parent}"
    return subprocess.run(
        [sys.executable, *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def values(kind: str, *sizes: int, dtype: torch.dtype = BF16, seed: int = 0) -> Tensor:
    """Test data by kind; the adversarial ones cancel or nearly vanish in the statistics."""
    torch.manual_seed(seed)
    x = torch.randn(*sizes)
    if kind == "tiny":
        x *= 1e-5
    elif kind == "huge":
        x *= 1e15
    elif kind == "offset":
        x += 1000.0
    elif kind == "outlier":
        x[..., 0] *= 1e4
    elif kind == "zero rows":
        x[::2] = 0
    elif kind == "constant rows":
        x[::2] = 7.0
    return x.to(dtype)


def table(seq: int, batch: int, dim: int, *, dtype: torch.dtype = torch.float32) -> RopeTable:
    """Random angles, one row a sample when batch > 1."""
    angles = torch.rand(seq, batch, 1, dim // 2, dtype=dtype) * 6.28
    return RopeTable.from_angles(angles.repeat_interleave(2, -1))


def guarded(x: Tensor, margin: int = 37) -> Tensor:
    """The same values inside a NaN-filled buffer with gaps between rows: any over-read shows."""
    *outer, inner = x.shape
    buffer = torch.full((*outer, inner + margin), float("nan"), dtype=x.dtype)
    view = buffer[..., margin // 2 : margin // 2 + inner]
    view.copy_(x)
    return view


def leaf(x: Tensor) -> Tensor:
    """A copy that collects a gradient."""
    return x.detach().clone().requires_grad_()


def gradients(
    run: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], grads: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """(outputs, input gradients) of run(*inputs) for the given output gradients."""
    outputs = list(run(*inputs))
    found = torch.autograd.grad(outputs, list(inputs), list(grads))
    return [output.detach() for output in outputs], list(found)


def error(x: Tensor, truth: Tensor) -> float:
    """Root mean square of x - truth in fp64."""
    return float((x.double() - truth.double()).square().mean().sqrt())


def worst(x: Tensor, truth: Tensor) -> float:
    """Largest |x - truth| in fp64."""
    return float((x.double() - truth.double()).abs().max())


def equal(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    """Bit-identical, NaN included."""
    return all(
        torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
        for a, b in zip(first, second, strict=True)
    )
