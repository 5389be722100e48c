# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled on all cores before any of them is wanted."""

from __future__ import annotations

import concurrent.futures
import multiprocessing

import torch

from mxflux.mx.triton_packers import Tile, plan

#: Shape, strides, dtype, row and column spec texts, tile or None for the table's, capability.
Job = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, str, str, "Tile | None", int]


def compile_ahead(job: Job) -> None:
    """Compile one launch into Triton's cache, in a process of its own that touches no GPU."""
    from triton.backends.compiler import GPUTarget

    from mxflux.mx.compile_only import compiling_for
    from mxflux.mx.kernels.packers import mx_pack_kernel

    shape, stride, dtype, row, col, tiling, capability = job
    x = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    # The timed launches have no random state, and a kernel is compiled for what it is given.
    rng = None if tiling else torch.empty(2, dtype=torch.int64, device="meta")
    prepared = plan(x, rng, row, col, "cuda", tiling)
    with compiling_for(GPUTarget("cuda", capability, 32)):
        mx_pack_kernel.warmup(*prepared.arguments, grid=(1,), **prepared.keywords)


def compile_all(jobs: set[Job]) -> None:
    """Compile on all cores; the run itself then finds the kernels cached."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(mp_context=context) as pool:
        list(pool.map(compile_ahead, jobs))


def capability() -> int:
    """90 for a Hopper."""
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor
