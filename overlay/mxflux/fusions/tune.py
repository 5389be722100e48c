# SPDX-License-Identifier: Apache-2.0
"""`python -m mxflux.fusions.tune`: time every candidate on this GPU and write its table.

A developer's tool. Nothing is tuned at run time: the table that this writes is committed and
read-only.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from triton.runtime.errors import OutOfResources

from mxflux.fusions import catalog, crosscompile, tables, timing
from mxflux.fusions.reduction import reduction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Config = dict[str, int]
SPILL_BYTES = 32
"""A candidate with more stack than this is not worth timing; a few bytes in an epilogue cost
nothing.
"""

REDUCTIONS = {
    1: ("norm_rope_backward", 4608, 1),
    2048: ("ln_modulate_backward", 4608, 1),
    16384: ("ln_modulate_backward", 512, 32),
}
"""Width class -> the backward whose partials are summed: norm weights, LN at B = 1 and B = 32."""

FINALISTS = 6
"""How many of the fastest are timed again, longer, before one of them is taken."""


def candidates(op: str, units: int, lanes: int) -> list[Config]:
    """Configurations worth timing. units: SMs or CUs; lanes: threads of a warp."""
    if op == "reduce_partials":
        sizes = (4, 8, 16, 64, 128, 256, 512, 1024), (4, 8, 16, 32, 128, 512, 1024)
        blocks = itertools.product(*sizes, (4, 8, 16))
        return [
            {"BLOCK_P": p, "BLOCK_C": c, "num_warps": w}
            for p, c, w in blocks
            if lanes * w <= p * c <= 64 * lanes * w
        ]
    if op.startswith(("qkv", "norm_rope")):
        return _rope_candidates(op, units, lanes)
    return _ln_candidates(op, units, lanes)


def _rope_candidates(op: str, units: int, lanes: int) -> list[Config]:
    shapes = [
        (block, warps)
        for block, warps in itertools.product((4, 8, 16, 32), (2, 4, 8))
        if block * catalog.HEAD_DIM // (warps * lanes) in (8, 16)
    ]
    if op.endswith("forward"):
        return [{"BLOCK_M": m, "num_warps": w} for m, w in shapes]
    loops = itertools.product(shapes, (2, 4, 6, 8, 12), _stages(lanes))
    return [
        {"BLOCK_M": m, "num_warps": w, "programs": units * p, "STAGES": s} for (m, w), p, s in loops
    ]


def _stages(lanes: int) -> tuple[int, ...]:
    """Depths of the loop's pipeline: asynchronous copies to shared memory on NVIDIA; on AMD loads
    ahead into registers, of which a third stage takes too many.
    """
    return (1, 2, 3, 4) if lanes == 32 else (1, 2)


def _ln_candidates(op: str, units: int, lanes: int) -> list[Config]:
    forward = op.endswith("forward")
    programs = (8, 20, 40, 250) if forward else (1, 2, 3, 4)  # 250: one block of rows each
    warps = (4, 8) if forward and lanes == 32 else (2, 4) if forward else (4, 8, 16)
    stages = _stages(lanes)[:2] if forward else _stages(lanes)
    return [
        {"CHUNK": 1024, "BLOCK_R": r, "programs": units * p, "num_warps": w, "STAGES": s}
        for r, p, w, s in itertools.product((1, 2), programs, warps, stages)
        if forward or r == 1 or w >= 8  # fewer threads spill their sums over two rows
    ]


def compile_one(arch: str, op: str, config: Config) -> str | None:
    """Compile one candidate into Triton's cache: the reason to leave it out, or None."""
    with crosscompile.compile_for(arch):
        if op == "reduce_partials":
            for width in REDUCTIONS:
                call = _reduced(arch, "meta", width, _tabulated(arch, width), config)[1]
                crosscompile.compile_launch(call.launch, call.pointers)
            return None
        for seq, batch in catalog.SHAPES:
            for call in catalog.Factory(arch).calls(op, seq, batch, config):
                compiled = crosscompile.compile_launch(call.launch, call.pointers)
                first = (seq, batch) == catalog.SHAPES[0]
                if first and crosscompile.resources(compiled).spills > SPILL_BYTES:
                    return "spills"
    return None


def precompile(arch: str, jobs: list[tuple[str, Config]], workers: int) -> list[tuple[str, Config]]:
    """The candidates that compile without spills, compiled in parallel processes that share
    Triton's cache.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        futures = [pool.submit(compile_one, arch, op, config) for op, config in jobs]
        return [job for job, future in zip(jobs, futures, strict=True) if future.result() is None]


def time_op(arch: str, op: str, seq: int, batch: int, config: Config, repeats: int = 12) -> float:
    """Median microseconds of the op's kernels on random data, L2 cold, launched from kept handles
    with the host ahead (timing.device_time); inf when they do not fit."""
    return _time(catalog.Factory(arch, "cuda").calls(op, seq, batch, config), repeats)


def time_reduction(arch: str, width: int, main: Config, config: Config, repeats: int = 12) -> float:
    """Median microseconds of a backward in its configuration `main` with the sum of its partials in
    another: the sum starts while the backward ends, so that its time alone says little.
    """
    return _time(_reduced(arch, "cuda", width, main, config), repeats)


def _tabulated(arch: str, width: int) -> Config:
    """The committed configuration of the backward of a width class."""
    op, seq, batch = REDUCTIONS[width]
    return tables.configuration(arch, op, *catalog.table_rows(op, seq, batch))


def _reduced(
    arch: str, device: str, width: int, main: Config, config: Config
) -> tuple[catalog.Call, catalog.Call]:
    """A backward in its configuration `main` and the sum of its partials in `config`."""
    kernel, total = catalog.Factory(arch, device).calls(*REDUCTIONS[width], main)
    outputs, parts, *columns = total.pointers[0].shape
    launch = reduction(arch, outputs, parts, math.prod(columns), fp64=False, config=config)
    return kernel, replace(total, launch=launch)


def _time(calls: Sequence[catalog.Call], repeats: int) -> float:
    def run() -> None:
        for call in calls:
            call()

    try:
        return timing.device_time(run, repeats=repeats)
    except OutOfResources:
        return float("inf")


def fastest(
    configs: Sequence[Config], time: Callable[[Config, int], float]
) -> tuple[Config, list[tuple[float, str]]]:
    """The winner and every measurement, ascending: the best few are timed again, for longer.

    time(config, repeats): microseconds.
    """
    first = [(time(config, 12), index) for index, config in enumerate(configs)]
    again = [(time(configs[index], 40), index) for _, index in sorted(first)[:FINALISTS]]
    return configs[min(again)[1]], [(t, str(configs[i])) for t, i in sorted(again) + sorted(first)]


def entries(op: str, best: dict[tuple[int, int], Config]) -> list[dict[str, int | None]]:
    """Table rows from the winner of each shape: borders halfway (geometrically), equal neighbours
    merged.
    """
    found = [(catalog.table_rows(op, s, b), config) for (s, b), config in best.items()]
    ranked = sorted(found, key=lambda item: item[0])
    rows: list[dict[str, int | None]] = []
    for index, ((width, count), config) in enumerate(ranked):
        last = index + 1 == len(ranked)
        if not last and ranked[index + 1][1] == config:
            continue
        border = None if last else round((count * ranked[index + 1][0][1]) ** 0.5)
        rows.append({"width": width, "max_rows": border, **config})
    return rows


def tune(
    arch: str, workers: int, log: dict[str, object], only: tuple[str, ...] = ()
) -> dict[str, object]:
    """Time every op (or some, and keep the others' rows); the table in its JSON form. log receives
    every measurement.
    """
    properties = torch.cuda.get_device_properties(0)
    units, lanes = properties.multi_processor_count, properties.warp_size
    wanted = only or tuple(tables.OPS)
    ops = [op for op in wanted if op != "reduce_partials"]
    jobs = [(op, config) for op in wanted for config in candidates(op, units, lanes)]
    usable = precompile(arch, jobs, workers)
    table: dict[str, list[dict[str, int | None]]] = {op: [] for op in tables.OPS}
    if only:
        path = tables.DIRECTORY / f"{arch}.json"
        table |= json.loads(path.read_text(encoding="utf-8"))["ops"]
    for op in ops:
        configs = _of(usable, op)
        best = {}
        for seq, batch in catalog.SHAPES:
            timed = functools.partial(time_op, arch, op, seq, batch)
            best[seq, batch], log[f"{op} {seq}x{batch}"] = fastest(configs, timed)
        table[op] = entries(op, best)
    if "reduce_partials" in wanted:
        table["reduce_partials"] = _tune_reductions(
            arch, _of(usable, "reduce_partials"), table, log
        )
    origin = f"{properties.name}, torch {torch.__version__}, tune.py"
    return {"format": tables.FORMAT, "arch": arch, "origin": origin, "ops": table}


def _of(jobs: list[tuple[str, Config]], op: str) -> list[Config]:
    return [config for name, config in jobs if name == op]


def _tune_reductions(
    arch: str,
    configs: list[Config],
    table: dict[str, list[dict[str, int | None]]],
    log: dict[str, object],
) -> list[dict[str, int | None]]:
    rows: list[dict[str, int | None]] = []
    for width, (op, seq, batch) in REDUCTIONS.items():
        entries = tables.parse_entries(table[op], op, f"{arch}.json")
        main = tables.choose(entries, *catalog.table_rows(op, seq, batch))
        timed = functools.partial(time_reduction, arch, width, main)
        best, log[f"reduce_partials {width}"] = fastest(configs, timed)
        rows.append({"width": width, "max_rows": None, **best})
    return rows


def dump(table: dict[str, object]) -> str:
    """JSON with one table row a line, so that a diff shows what changed."""
    ops: dict[str, list[dict[str, int | None]]] = table["ops"]  # type: ignore[assignment]
    lines = []
    for op, rows in ops.items():
        body = ",\n".join("   " + json.dumps(row) for row in rows)
        lines.append(f"  {json.dumps(op)}: [\n{body}\n  ]")
    head = "".join(f' "{k}": {json.dumps(table[k])},\n' for k in ("format", "arch", "origin"))
    return "{\n" + head + ' "ops": {\n' + ",\n".join(lines) + "\n }\n}\n"


def main(argv: list[str] | None = None) -> int:
    """0: tuned; 2: called wrongly."""
    parser = argparse.ArgumentParser(prog="python -m mxflux.fusions.tune", description=__doc__)
    parser.add_argument("--out", type=Path, default=tables.DIRECTORY, help="folder of the table")
    parser.add_argument(
        "--op", action="append", default=[], choices=tables.OPS, help="only this op (repeatable)"
    )
    parser.add_argument("--log", type=Path, help="write every measurement as JSON")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    arguments = parser.parse_args(argv)
    if not torch.cuda.is_available():
        parser.error("no GPU: tuning times kernels; the committed tables need no tuning to be used")
    arch = tables.architecture(torch.device("cuda", 0))
    log: dict[str, object] = {}
    table = tune(arch, arguments.workers, log, tuple(arguments.op))
    tables.parse(json.loads(dump(table)), f"{arch}.json")
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{arch}.json"
    path.write_text(dump(table), encoding="utf-8")
    if arguments.log:
        arguments.log.write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")
    print(f"{path} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
