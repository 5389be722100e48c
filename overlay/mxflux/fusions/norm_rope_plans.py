# SPDX-License-Identifier: Apache-2.0
"""Checks and launch geometry shared by the per-tensor and the whole-QKV norm + RoPE."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from mxflux.fusions import checks, tables
from mxflux.fusions.launch import Launch
from mxflux.fusions.plans import Layout, contiguous, fitting_stages


@dataclass(frozen=True)
class Geometry:
    """How rows (s, b, h) map to tiles: groups of rows that share a table row, tiles of BLOCK_M
    rows.
    """

    batch: int
    heads: int
    dim: int
    groups: int
    group_rows: int
    per_sample: bool

    @property
    def rows(self) -> int:
        """S*B*heads."""
        return self.groups * self.group_rows

    def tiles(self, block_m: int) -> int:
        """Tiles a group."""
        return -(-self.group_rows // block_m)

    def block(self, config: dict[str, int]) -> int:
        """BLOCK_M of a table entry, which is for D = 128, kept at the same bytes a tile."""
        return max(1, config["BLOCK_M"] * 128 // max(self.width, 16))

    @property
    def width(self) -> int:
        """D rounded up to a power of two, as tl.arange needs it."""
        return 1 << (self.dim - 1).bit_length()


def geometry(sizes: torch.Size, dim: int, cos_sin: torch.Tensor) -> Geometry:
    """sizes [S, B, heads, ...]; a table with a batch dimension of 1 serves every sample."""
    seq, batch, heads = sizes[:3]
    per_sample = cos_sin.shape[1] != 1
    groups, group_rows = (seq * batch, heads) if per_sample else (seq, batch * heads)
    return Geometry(batch, heads, dim, groups, group_rows, per_sample)


def table_problem(cos_sin: torch.Tensor, x: torch.Tensor, dim: int) -> str | None:
    """cos_sin [S, 1 or B, D], fp32 (fp64 with fp64), unit inner stride, on x's device."""
    seq, batch = x.shape[:2]
    wanted = torch.float64 if x.dtype == torch.float64 else torch.float32
    if cos_sin.dim() != 3 or tuple(cos_sin.shape) not in ((seq, 1, dim), (seq, batch, dim)):
        return checks.expect("cos_sin shape", list(cos_sin.shape), f"[{seq}, 1 or {batch}, {dim}]")
    if cos_sin.dtype != wanted:
        return checks.expect("cos_sin dtype", cos_sin.dtype, wanted)
    if cos_sin.stride(-1) != 1:
        return checks.expect("cos_sin inner stride", cos_sin.stride(-1), 1)
    return checks.same_device("cos_sin", cos_sin, x)


def weight_problem(name: str, weight: torch.Tensor, x: torch.Tensor, dim: int) -> str | None:
    """A norm weight [D], contiguous, in x's dtype or fp32: fp32 at init, bf16 after
    Float16Module.
    """
    return checks.first(
        checks.shape(name, weight, (dim,)),
        checks.parameter_dtype(name, weight, x),
        checks.same_device(name, weight, x),
        None if weight.stride(0) == 1 else checks.expect(f"{name} stride", weight.stride(0), 1),
    )


def gradient_problem(
    name: str, grad: torch.Tensor, like: torch.Tensor, sizes: list[int]
) -> str | None:
    """An incoming gradient: shape of the output, dtype and device of the input."""
    return checks.first(
        checks.shape(name, grad, tuple(sizes)),
        checks.same_dtype(name, grad, "the input", like),
        checks.same_device(name, grad, like),
    )


def accumulator(x: torch.Tensor) -> torch.dtype:
    """The dtype of all arithmetic, of rstd and of partials."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def configuration(x: torch.Tensor, op: str, geo: Geometry) -> dict[str, int]:
    """The tabulated configuration of `op` for x's device."""
    return tables.configuration(tables.architecture(x.device), op, geo.width, geo.rows)


def constexprs(geo: Geometry, block: int, x: torch.Tensor, **more: float) -> dict[str, Any]:
    """The compile-time arguments of every norm + RoPE kernel."""
    return {
        "D": geo.dim,
        "BLOCK_D": geo.width,
        "BLOCK_M": block,
        "TABLE_PER_SAMPLE": geo.per_sample,
        "FP64": x.dtype == torch.float64,
        **more,
    }


def stages(config: dict[str, int], geo: Geometry, block: int, x: torch.Tensor, tensors: int) -> int:
    """Stages of a backward's pipeline that loads a tile of each of `tensors` an iteration."""
    return fitting_stages(config["STAGES"], tensors * block * geo.width * x.element_size())


@dataclass(frozen=True)
class ForwardPlan:
    """Sizes of the outputs and the launch."""

    shape: tuple[int, ...]
    rstd: tuple[int, ...]
    acc: torch.dtype
    launch: Launch

    @cached_property
    def layout(self) -> Layout:
        """Of an output."""
        return contiguous(*self.shape)

    @cached_property
    def rstd_layout(self) -> Layout:
        """Of rstd."""
        return contiguous(*self.rstd)
