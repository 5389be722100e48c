# SPDX-License-Identifier: Apache-2.0
"""Times of every chain, and of the dual kernels in other tiles."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from chain_bench import cases
from chain_bench.inputs import DEVICE, inputs
from chain_bench.report import Report, Result
from mxflux.fusions import chain_catalog, timing
from mxflux.fusions.catalog import HEAD_DIM
from mxflux.mx.plans import LinearPlan
from mxflux.mx.triton_packers import Tile

SWEPT = ((32, 128, 4), (64, 64, 4), (64, 128, 8), (128, 64, 8))
SWEPT_QKV = ((32, HEAD_DIM, 4), (32, HEAD_DIM, 8), (64, HEAD_DIM, 8), (128, HEAD_DIM, 8))
SWEPT_SHAPE = (512, 64)


def time_chains(report: Report, seq: int, batch: int, name: str, plan: LinearPlan) -> None:
    """Every chain at one shape."""
    for chain in cases.chains(inputs(seq, batch), plan):
        report.results.append(
            Result(
                chain.name, chain.key, name, seq, batch,
                timing.device_time(chain.fused), timing.device_time(chain.unfused),
                chain.bytes / report.copy_bandwidth * 1e6,
            )
        )  # fmt: skip


def swept(plans: Sequence[str]) -> list[tuple[chain_catalog.Case, Tile]]:
    """What a sweep times: each dual kernel of these plans in each tile, the heaviest first."""
    dual = [case for case in reversed(chain_catalog.CASES) if case.dual and case.plan in plans]
    return [
        (case, tile)
        for case in dual
        for tile in (SWEPT_QKV if case.kernel.startswith("qkv") else SWEPT)
    ]


def sweep(report: Report, plans: Sequence[str], until: float) -> None:
    """Each dual kernel in other tiles, as long as time is left."""
    for case, tile in swept(plans):
        if time.monotonic() > until:
            return
        call: Callable[[], Any] = chain_catalog.call(case, *SWEPT_SHAPE, DEVICE, tile)
        found = report.sweep.setdefault(case.name, {})
        found["x".join(map(str, tile))] = timing.device_time(call, repeats=10)
        del call
