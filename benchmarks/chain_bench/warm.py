# SPDX-License-Identifier: Apache-2.0
"""Compiles what a run will launch in several processes, which share Triton's cache on disk.

A kernel takes seconds to compile and microseconds to run: one process after the other would spend
most of a run's time on the host.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import torch

from chain_bench import cases, measure
from chain_bench.checks import check
from chain_bench.inputs import DEVICE, inputs
from chain_bench.report import Report
from mxflux.fusions import chain_catalog
from mxflux.mx.triton_packers import Tile

WORKERS = 12
"""At most; each holds a few GiB of the GPU while its chains run once."""

Shape = tuple[int, int]


def warm(
    plans: Sequence[str], checked: Sequence[Shape], timed: Sequence[Shape], tiles: bool
) -> None:
    """Launch everything once. Raises what a process raised: a kernel that does not compile."""
    workers = min(WORKERS, os.cpu_count() or 1)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context) as pool:
        jobs = [pool.submit(_check, plan, *shape) for plan in plans for shape in checked]
        jobs += [pool.submit(_time, plan, *shape) for plan in plans for shape in timed]
        if tiles:
            jobs += [pool.submit(_tile, *one) for one in measure.swept(plans)]
        for job in jobs:
            job.result()


def _check(plan: str, seq: int, batch: int) -> None:
    check(Report(DEVICE, "", "", 1.0), seq, batch, plan, chain_catalog.PLANS[plan])
    torch.cuda.empty_cache()


def _time(plan: str, seq: int, batch: int) -> None:
    for chain in cases.chains(inputs(seq, batch), chain_catalog.PLANS[plan]):
        chain.fused()
        chain.unfused()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def _tile(case: chain_catalog.Case, tile: Tile) -> None:
    chain_catalog.call(case, *measure.SWEPT_SHAPE, DEVICE, tile)()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
