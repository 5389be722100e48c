# SPDX-License-Identifier: Apache-2.0
"""Hardware counters of the fused kernels (Nsight Compute): what limits each of them, in one table.

    python benchmarks/counters.py --out out/counters
    python benchmarks/counters.py --ops ln_modulate_backward --shapes 512x32 4608x1

Every kernel runs once in its tabulated configuration, caches flushed, clocks left alone. Needs
`ncu` on PATH and a driver that lets this user read counters.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "overlay"))

import torch

from mxflux.fusions import catalog, tables

SHAPES = ((512, 32), (4608, 1))
OPS = tuple(op for op in tables.OPS if op != "reduce_partials")
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = ("long_scoreboard", "barrier", "lg_throttle", "mio_throttle", "short_scoreboard")
METRICS = (
    "gpu__time_duration.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "launch__registers_per_thread",
    "launch__grid_size",
    "launch__waves_per_multiprocessor",
    *(STALL.format(reason) for reason in STALLS),
)
COLUMNS = (
    "op", "S x B", "kernel", "us", "MB read", "MB written", "least MB", "DRAM %", "issue %",
    "warps %", "registers", "programs", "waves", "stalls an issue",
)  # fmt: skip


@dataclass(frozen=True)
class Profiled:
    """One kernel launch; least: bytes that it must move."""

    op: str
    shape: str
    kernel: str
    least: int


def launch(ops: list[str], shapes: list[tuple[int, int]], order: Path) -> None:
    """In the profiled process: every kernel warm, then once between profiler start and stop."""
    arch, cudart = tables.architecture(torch.device("cuda", 0)), torch.cuda.cudart()
    profiled: list[dict[str, object]] = []
    for op in ops:
        for seq, batch in shapes:
            config = tables.configuration(arch, op, *catalog.table_rows(op, seq, batch))
            calls = catalog.Factory(arch, "cuda").calls(op, seq, batch, config)
            for call in calls:
                call()
            torch.cuda.synchronize()
            cudart.cudaProfilerStart()
            for call in calls:
                call()
            torch.cuda.synchronize()
            cudart.cudaProfilerStop()
            profiled += [
                {"op": op, "shape": f"{seq}x{batch}", "kernel": call.launch.kernel.__name__,
                 "least": call.bytes}
                for call in calls
            ]  # fmt: skip
    order.write_text(json.dumps(profiled), encoding="utf-8")


def command(ncu: str, ops: list[str], shapes: list[str], order: Path) -> list[str]:
    """Ncu around this file's own worker."""
    return [
        ncu, "--csv", "--print-units", "base", "--clock-control", "none",
        "--profile-from-start", "off", "--metrics", ",".join(METRICS),
        sys.executable, __file__, "--worker", str(order), "--ops", *ops, "--shapes", *shapes,
    ]  # fmt: skip


def parse(text: str, launched: list[Profiled]) -> list[dict[str, float]]:
    """Metric -> value of each launch, from ncu's CSV among other output.

    ValueError when it profiled other kernels than those.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), len(lines))
    found: dict[str, dict[str, float]] = {}
    names: dict[str, str] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        names[row["ID"]] = row["Kernel Name"]
        value = float(row["Metric Value"].replace(",", ""))
        found.setdefault(row["ID"], {})[row["Metric Name"]] = value
    wanted = [what.kernel for what in launched]
    if list(names.values()) != wanted:
        raise ValueError(f"ncu profiled {list(names.values())}, launched were {wanted}")
    return list(found.values())


def line(what: Profiled, counters: dict[str, float]) -> str:
    """One row."""
    stalls = sorted(((counters[STALL.format(r)], r) for r in STALLS), reverse=True)[:2]
    cells = (
        what.op, what.shape, what.kernel.removesuffix("_kernel"),
        f"{counters[METRICS[0]] / 1e3:.1f}", f"{counters[METRICS[1]] / 1e6:.1f}",
        f"{counters[METRICS[2]] / 1e6:.1f}", f"{what.least / 1e6:.1f}",
        *(f"{counters[name]:.0f}" for name in METRICS[3:8]), f"{counters[METRICS[8]]:.2f}",
        ", ".join(f"{reason.replace('_', ' ')} {value:.1f}" for value, reason in stalls),
    )  # fmt: skip
    return "|" + "|".join(cells) + "|"


def markdown(device: str, rows: list[tuple[Profiled, dict[str, float]]]) -> str:
    """The table for people."""
    head = ["|" + "|".join(COLUMNS) + "|", "|" + "---|" * len(COLUMNS)]
    body = [line(what, counters) for what, counters in rows]
    return "\n".join([f"# Counters of the fused kernels\n\n{device}.\n", *head, *body]) + "\n"


def _shape(text: str) -> tuple[int, int]:
    seq, _, batch = text.partition("x")
    return int(seq), int(batch)


def main(argv: list[str] | None = None) -> int:
    """0: counted; 1: ncu could not; 2: called wrongly."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("out/counters"))
    parser.add_argument("--ops", nargs="+", choices=OPS, default=list(OPS), metavar="OP")
    parser.add_argument(
        "--shapes", nargs="+", type=_shape, default=list(SHAPES), metavar="SEQxBATCH"
    )
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if not torch.cuda.is_available():
        parser.error("no GPU")
    if arguments.worker:
        launch(arguments.ops, arguments.shapes, arguments.worker)
        return 0
    ncu = shutil.which("ncu")
    if ncu is None:
        parser.error("ncu: not on PATH; it comes with Nsight Compute")
    arguments.out.mkdir(parents=True, exist_ok=True)
    order = arguments.out / "order.json"
    shapes = [f"{seq}x{batch}" for seq, batch in arguments.shapes]
    done = subprocess.run(
        command(ncu, arguments.ops, shapes, order), capture_output=True, text=True, check=False
    )
    (arguments.out / "ncu.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    if done.returncode:
        print(f"ncu ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return 1
    profiled = [Profiled(**item) for item in json.loads(order.read_text(encoding="utf-8"))]
    try:
        rows = list(zip(profiled, parse(done.stdout, profiled), strict=True))
    except ValueError as error:
        print(f"{error}\n{done.stdout[-2000:]}\nall of it: {arguments.out / 'ncu.txt'}")
        return 1
    table = markdown(torch.cuda.get_device_name(), rows)
    (arguments.out / "counters.md").write_text(table, encoding="utf-8")
    print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
