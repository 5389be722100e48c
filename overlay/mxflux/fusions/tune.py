# SPDX-License-Identifier: Apache-2.0
"""`python -m mxflux.fusions.tune`: time every candidate on this GPU and write its table.

A developer's tool. Nothing is tuned at run time: the table that this writes is committed and
read-only.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from triton.runtime.errors import OutOfResources

from mxflux.fusions import catalog, crosscompile, tables, timing
from mxflux.fusions.reduction import reduction

Config = dict[str, int]
SPILL_BYTES = 32
"""A candidate with more stack than this is not worth timing; a few bytes in an epilogue cost
nothing.
"""

REDUCTIONS = {1: (792, 128, 2), 2048: (396, 3072, 2), 16384: (12, 98304, 2)}
"""Width class -> parts, columns, outputs: norm weights, LN at B = 1, LN at B = 32."""


def candidates(op: str, units: int, lanes: int) -> list[Config]:
    """Configurations worth timing. units: SMs or CUs; lanes: threads of a warp."""
    if op == "reduce_partials":
        blocks = itertools.product((4, 16, 64, 256, 512, 1024), (4, 8, 16, 32, 128, 512), (4, 8))
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
    loops = itertools.product(shapes, (4, 6, 8, 12), (1, 2) if lanes == 32 else (1,))
    return [
        {"BLOCK_M": m, "num_warps": w, "programs": units * p, "STAGES": s} for (m, w), p, s in loops
    ]


def _ln_candidates(op: str, units: int, lanes: int) -> list[Config]:
    forward = op.endswith("forward")
    programs = (8, 20, 40) if forward else (1, 2, 3, 4)
    warps = (4, 8) if forward and lanes == 32 else (2, 4) if forward else (4, 8, 16)
    stages = (1, 2) if lanes == 32 else (1,)
    return [
        {"CHUNK": 1024, "BLOCK_R": r, "programs": units * p, "num_warps": w, "STAGES": s}
        for r, p, w, s in itertools.product((1, 2), programs, warps, stages)
        if forward or r == 1 or w >= 8  # fewer threads spill their sums over two rows
    ]


def compile_one(arch: str, op: str, config: Config) -> str | None:
    """Compile one candidate into Triton's cache: the reason to leave it out, or None."""
    with crosscompile.compile_for(arch):
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


def time_op(arch: str, op: str, seq: int, batch: int, config: Config) -> float:
    """Median microseconds of the op's kernels on random data, L2 cold, launched from kept handles
    with the host ahead (timing.device_time); inf when they do not fit."""
    calls = catalog.Factory(arch, "cuda").calls(op, seq, batch, config)

    def run() -> None:
        for call in calls:
            call()

    try:
        return timing.device_time(run, repeats=12)
    except OutOfResources:
        return float("inf")


def time_reduction(arch: str, width: int, config: Config) -> float:
    """Median microseconds of one sum of partials that were just written, as backward leaves
    them; the time of that write is in all candidates alike.
    """
    parts, columns, outputs = REDUCTIONS[width]
    launch = reduction(arch, outputs, parts, columns, fp64=False, config=config)
    partial = torch.randn(outputs, parts, columns, device="cuda")
    out = [torch.empty(columns, dtype=torch.bfloat16, device="cuda") for _ in range(3)]

    def run() -> None:
        partial.neg_()
        launch(partial, *out)

    return timing.device_time(run, repeats=12)


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
    jobs = [(op, config) for op in ops for config in candidates(op, units, lanes)]
    usable = precompile(arch, jobs, workers)
    table: dict[str, list[dict[str, int | None]]] = {op: [] for op in tables.OPS}
    if only:
        path = tables.DIRECTORY / f"{arch}.json"
        table |= json.loads(path.read_text(encoding="utf-8"))["ops"]
    for op in ops:
        configs = [config for name, config in usable if name == op]
        best = {}
        for seq, batch in catalog.SHAPES:
            times = [time_op(arch, op, seq, batch, config) for config in configs]
            log[f"{op} {seq}x{batch}"] = sorted(zip(times, map(str, configs), strict=True))
            best[seq, batch] = configs[times.index(min(times))]
        table[op] = entries(op, best)
    if "reduce_partials" in wanted:
        table["reduce_partials"] = _tune_reductions(arch, units, lanes, log)
    origin = f"{properties.name}, torch {torch.__version__}, tune.py"
    return {"format": tables.FORMAT, "arch": arch, "origin": origin, "ops": table}


def _tune_reductions(
    arch: str, units: int, lanes: int, log: dict[str, object]
) -> list[dict[str, int | None]]:
    rows: list[dict[str, int | None]] = []
    for width in REDUCTIONS:
        configs = candidates("reduce_partials", units, lanes)
        times = [time_reduction(arch, width, config) for config in configs]
        log[f"reduce_partials {width}"] = sorted(zip(times, map(str, configs), strict=True))
        rows.append({"width": width, "max_rows": None, **configs[times.index(min(times))]})
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
