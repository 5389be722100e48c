# SPDX-License-Identifier: Apache-2.0
"""Backend `triton`: tl.dot_scaled. Native on gfx950 and sm_100; Triton emulates it elsewhere."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch

from mxflux.mx.layouts import PLAIN
from mxflux.mx.packers import triton_missing

if TYPE_CHECKING:
    from mxflux.mx.blob import MXBlob

NAME = "triton"
FORMATS = ("e2m1", "e4m3", "e5m2")
#: (BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M), warps, stages: a fixed table, nothing is tuned at run time.
TILE, WARPS, STAGES = (128, 128, 128, 8), 8, 2
SMALL_TILE, SMALL_WARPS = (32, 64, 128, 8), 4
SMALL_ROWS = 64
INTERPRETER_DOT_SCALED = (3, 8)


def missing(device: torch.device) -> str | None:
    """triton and a GPU; or the interpreter of triton >= 3.8, whose dot_scaled works."""
    why = triton_missing(device)
    if why is not None or os.environ.get("TRITON_INTERPRET") != "1":
        return why
    import triton

    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if version < INTERPRETER_DOT_SCALED:
        return f"the interpreter of triton {triton.__version__} has no dot_scaled (3.8 has)"
    return None


def refusal(a: MXBlob, b: MXBlob) -> str | None:
    """Plain layout and E2M1, E4M3 or E5M2; Triton's dot_scaled has no FP6."""
    for spec in (a.spec, b.spec):
        if spec.format not in FORMATS:
            return f"tl.dot_scaled has no {spec.format}; valid: {', '.join(FORMATS)}"
        if spec.layout != PLAIN:
            return f"it reads layout {PLAIN}, not {spec.layout}"
    return None


def result_dtype(wanted: torch.dtype) -> torch.dtype:
    """Any; the kernel rounds its fp32 accumulator once."""
    return wanted


def configuration(rows: int) -> tuple[tuple[int, int, int, int], int, int]:
    """Tile, warps and stages for a GEMM of that many rows."""
    return (SMALL_TILE, SMALL_WARPS, STAGES) if rows <= SMALL_ROWS else (TILE, WARPS, STAGES)


def plan(
    a: MXBlob, b: MXBlob, out: torch.Tensor
) -> tuple[tuple[int], tuple[Any, ...], dict[str, Any]]:
    """Grid, arguments and keywords of the launch that fills `out` (M, N). Works on meta tensors."""
    (block_m, block_n, block_k, group_m), warps, stages = configuration(a.rows)
    grid = (-(-a.rows // block_m) * -(-b.rows // block_n),)
    operands = (a.data, b.data, a.scale, b.scale, out, a.rows, b.rows, a.padded_k, out.stride(0))
    keywords = {
        "FMT_A": a.spec.format,
        "FMT_B": b.spec.format,
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_K": block_k,
        "GROUP_M": group_m,
        "num_warps": warps,
        "num_stages": stages,
    }
    return grid, operands, keywords


def multiply(a: MXBlob, b: MXBlob, dtype: torch.dtype) -> torch.Tensor:
    """A B^T in `dtype`."""
    from mxflux.mx.kernels.gemm import mx_gemm_kernel

    out = torch.empty(a.rows, b.rows, dtype=dtype, device=a.data.device)
    grid, arguments, keywords = plan(a, b, out)
    with torch.cuda.device_of(out):
        mx_gemm_kernel[grid](*arguments, **keywords)
    return out
