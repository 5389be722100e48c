# SPDX-License-Identifier: Apache-2.0
"""Checks and launch geometry shared by LN-modulate with and without the gated residual."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from mxflux.fusions import checks, tables
from mxflux.fusions.kernels.ln_modulate import (
    ln_modulate_backward_kernel,
    ln_modulate_forward_kernel,
)
from mxflux.fusions.launch import Launch
from mxflux.fusions.plans import BackwardPlan, Layout, contiguous, fitting_stages
from mxflux.fusions.reduction import reduction

if TYPE_CHECKING:
    from collections.abc import Sequence

Tensor = torch.Tensor
TABULATED_WIDTH = 3072
"""The hidden size for which the tables were made, Flux's."""


@dataclass(frozen=True)
class ForwardPlan:
    """Size of the outputs and of mean and rstd, and the launch."""

    shape: tuple[int, ...]
    rows: int
    acc: torch.dtype
    device: torch.device
    launch: Launch

    @cached_property
    def layout(self) -> Layout:
        """Of an output."""
        return contiguous(*self.shape)

    @cached_property
    def row_values(self) -> Tensor:
        """What mean and rstd are like, one number in memory."""
        return torch.empty(1, dtype=self.acc, device=self.device).expand(self.rows)

    def outputs(self, x: Tensor, traced: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Room for an output, for mean and for rstd. `empty_like` takes half the time of the other
        ways to make a tensor; a tracer, for which strides are its own, gets the explicit ones.
        """
        if traced:
            mean = x.new_empty(self.rows, dtype=self.acc)
            return x.new_empty_strided(*self.layout), mean, torch.empty_like(mean)
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        return out, torch.empty_like(self.row_values), torch.empty_like(self.row_values)


def hidden_problem(name: str, x: Tensor) -> str | None:
    """A hidden state [S, B, H]."""
    if x.dim() != 3:
        return checks.expect(f"{name} shape", list(x.shape), "[S, B, H]")
    return checks.first(checks.floating(name, x), checks.hidden(name, x.shape[2]))


def like_problem(name: str, tensor: Tensor, x: Tensor) -> str | None:
    """A tensor with the shape, dtype and device of x."""
    return checks.first(
        checks.shape(name, tensor, tuple(x.shape)),
        checks.same_dtype(name, tensor, "x", x),
        checks.same_device(name, tensor, x),
    )


def modulation_problem(names: Sequence[str], tensors: Sequence[Tensor], x: Tensor) -> str | None:
    """scale, shift, gate [B, H] of one dtype: x's or fp32; any row stride (chunks of one
    projection).
    """
    for name, tensor in zip(names, tensors, strict=True):
        found = checks.first(
            checks.shape(name, tensor, tuple(x.shape[1:])),
            checks.parameter_dtype(name, tensor, x),
            checks.same_dtype(name, tensor, names[0], tensors[0]),
            checks.same_device(name, tensor, x),
        )
        if found is not None:
            return found
    return None


def forward_plan(
    x: Tensor, y: Tensor, gate: Tensor, scale: Tensor, shift: Tensor, eps: float,
    config: dict[str, int], *, gated: bool, store: bool = True,
) -> ForwardPlan:  # fmt: skip
    """Launch(x, y, gate, scale, shift, h, out, mean, rstd) in one configuration; store: whether out
    is written.
    """
    seq, batch, _ = x.shape
    splits, iterations, fixed = _split(config, x, gated, tensors=2 if gated else 1)
    scalars = (
        *x.stride()[:2], *y.stride()[:2], gate.stride(0), scale.stride(0), shift.stride(0),
        seq, batch, splits, iterations,
    )  # fmt: skip
    kernel = ln_modulate_forward_kernel
    fixed |= {"EPS": eps, "STORE": store}
    launch = Launch(kernel, splits * batch, scalars, fixed, _warps(config, x.shape[2]))
    return ForwardPlan(tuple(x.shape), seq * batch, accumulator(x), x.device, launch)


def backward_plan(
    grads: tuple[Tensor, Tensor], h: Tensor, y: Tensor, gate: Tensor, scale: Tensor,
    config: dict[str, int], arch: str, *, gated: bool,
) -> BackwardPlan:  # fmt: skip
    """Launch(g, dh, h, y, gate, scale, mean, rstd, dx, dy, partial) in one configuration, and the
    sum.
    """
    seq, batch, width = h.shape
    splits, iterations, fixed = _split(config, h, gated, tensors=4 if gated else 2)
    scalars = (
        *(stride for tensor in (*grads, h, y) for stride in tensor.stride()[:2]),
        gate.stride(0), scale.stride(0), seq, batch, splits, iterations,
    )  # fmt: skip
    kernel = ln_modulate_backward_kernel
    fixed["DEPENDENT"] = tables.dependent_launches(arch)
    launch = Launch(kernel, splits * batch, scalars, fixed, _warps(config, width))
    outputs = 3 if gated else 2
    reduce = reduction(arch, outputs, splits, batch * width, fp64=fixed["FP64"])
    partial = (outputs, splits, batch, width)
    return BackwardPlan(tuple(h.shape), partial, accumulator(h), launch, reduce)


def accumulator(x: Tensor) -> torch.dtype:
    """The dtype of all arithmetic, of mean, rstd and of partials."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def configuration(op: str, x: Tensor) -> dict[str, int]:
    """The tabulated configuration of `op` for x's device."""
    arch = tables.architecture(x.device)
    return tables.configuration(arch, op, x.shape[2], x.shape[0] * x.shape[1])


def _warps(config: dict[str, int], width: int) -> int:
    """Warps for rows of `width`: a wider row than the tables' gets more of them, up to 8, so that
    its sums stay in registers.
    """
    wider = -(-width // TABULATED_WIDTH)
    return max(config["num_warps"], min(8, config["num_warps"] << (wider - 1).bit_length()))


def _split(
    config: dict[str, int], x: Tensor, gated: bool, tensors: int
) -> tuple[int, int, dict[str, Any]]:
    """Programs a sample, iterations a program, and the compile-time arguments.

    config["programs"] is the number for the whole batch: with B = 1 one sample gets them all.
    tensors: how many rows an iteration loads.
    """
    seq, batch, width = x.shape
    blocks = -(-seq // config["BLOCK_R"])
    splits = min(max(1, config["programs"] // max(1, batch)), blocks)
    iterations = -(-blocks // max(1, splits))
    chunk = min(config["CHUNK"], 1 << (width - 1).bit_length())
    bytes_each = tensors * config["BLOCK_R"] * chunk * -(-width // chunk) * x.element_size()
    fixed = {
        "H": width,
        "CHUNK": chunk,
        "CHUNKS": -(-width // chunk),
        "BLOCK_R": config["BLOCK_R"],
        "GATED": gated,
        "STAGES": fitting_stages(config["STAGES"], bytes_each),
        "FP64": x.dtype == torch.float64,
    }
    return splits, iterations, fixed
