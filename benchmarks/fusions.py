# SPDX-License-Identifier: Apache-2.0
"""The fused kernels against the byte floor, eager, torch.compile, TE and Liger, in one table.

    python benchmarks/fusions.py --device cuda --out out/fusions           # check, time, report
    python benchmarks/fusions.py --device cuda --tune --out out/fusions    # tune, write the table

Every op is checked against the fp64 chain (outputs, gradients, run-to-run bits, the registered ops'
bits) before anything is timed. Times are medians of CUDA events, the L2 flushed before each call;
backward is what torch.autograd.grad takes. The floor is the least bytes over the copy bandwidth
measured in the same run.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "overlay"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from fusion_bench.checks import check, check_compiled, check_peer
from fusion_bench.measure import Clock, measure_enqueue, time_compiled, time_or_skip
from fusion_bench.ops import OPS, Op
from fusion_bench.peers import Peer, peers
from fusion_bench.report import Report, judge, markdown, place, write

from mxflux.fusions import catalog, tables, timing

COMPILED_SHAPE = (512, 32)
"""Where torch.compile is always timed: a target refers to it."""

SPARE_SHAPE = (4608, 1)
"""Where it is timed too, while the budget lasts."""

TARGET_SHAPES = ((512, 32), (512, 64), (4608, 1))
CHECKED_SHAPES = ((512, 32), (4608, 1), (77, 3))


def retune(out: Path, ops: list[str]) -> None:
    """Write this GPU's table to out and use it for the rest of the run (and in the checkout).

    Named ops are tuned one after the other, each with the rows that the one before it won.
    """
    from mxflux.fusions import tune

    arch = tables.architecture(torch.device("cuda", 0))
    for op in ops or [""]:
        log = out / f"{arch}-tuning{op and '-' + op}.json"
        only = ["--op", op] if op else []
        if tune.main(["--out", str(out), "--log", str(log), *only]) == 0:
            shutil.copyfile(out / f"{arch}.json", tables.DIRECTORY / f"{arch}.json")
            tables.load.cache_clear()


def run(budget: float, save: Callable[[Report], None] = lambda _: None) -> Report:
    """Check and time. What the targets need comes first; the budget cuts only what follows it.

    save: called with the report whenever a long part begins, so that no time limit loses it all.
    """
    import triton

    clock = Clock()
    report = Report(
        torch.cuda.get_device_name(), torch.__version__, triton.__version__, timing.copy_bandwidth()
    )
    others = {op.name: _checked(report, op) for op in OPS}
    clock.lap(report, "checks")
    measure_enqueue(report)
    clock.lap(report, "enqueue")
    for seq, batch in sorted(catalog.SHAPES, key=lambda shape: shape not in TARGET_SHAPES):
        for op in OPS:
            _time(report, op, others[op.name], seq, batch)
    clock.lap(report, "fused, eager and peers")
    for op in OPS:
        save(report)
        time_compiled(report, op, *COMPILED_SHAPE)
        clock.lap(report, f"torch.compile of {op.name}")
    for op in OPS:
        save(report)
        report.checks += check_compiled(op, 256, 32)
    clock.lap(report, "checks of the compiled ops")
    for op in OPS:
        if clock.total() > budget:
            where = "x".join(map(str, SPARE_SHAPE))
            report.skipped.append(f"{op.name} {where}: torch.compile, out of time")
        else:
            save(report)
            time_compiled(report, op, *SPARE_SHAPE)
    clock.lap(report, "torch.compile at the spare shape")
    report.results.sort(key=place)
    judge(report)
    return report


def _checked(report: Report, op: Op) -> list[Peer]:
    """Check the op; the peers that compute the same, checked too."""
    for seq, batch in CHECKED_SHAPES:
        report.checks += check(op, seq, batch)
    found, missing = peers(op)
    report.skipped += missing
    for peer in found:
        report.checks += check_peer(op, peer, 77, peer.batch or 3)
    return found


def _time(report: Report, op: Op, others: list[Peer], seq: int, batch: int) -> None:
    """One op, its chain and its peers at one shape."""
    found = {"fused": op.run, "eager": op.chain}
    found |= {peer.name: peer.run for peer in others if peer.batch in (None, batch)}
    for name, call in found.items():
        time_or_skip(report, op, name, call, seq, batch)
    torch.cuda.empty_cache()


def main(argv: list[str] | None = None) -> int:
    """0: correct, whatever the times; 1: a check failed; 2: called wrongly."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=["cuda"], required=True)
    parser.add_argument("--out", type=Path, default=Path("out/fusions"))
    parser.add_argument(
        "--tune",
        nargs="*",
        metavar="OP",
        choices=tables.OPS,
        help="first tune these ops (none named: all) and write the table",
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=150,
        help="seconds after which torch.compile is timed at 512x32 only",
    )
    arguments = parser.parse_args(argv)
    if not torch.cuda.is_available():
        parser.error(
            "no GPU; the kernels' correctness is tested on the CPU by tests/overlay/fusions"
        )
    torch._functorch.config.donated_buffer = False  # retain_graph on compiled graphs
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.tune is not None:
        retune(arguments.out, arguments.tune)
    report = run(arguments.budget, lambda unfinished: write(unfinished, arguments.out))
    write(report, arguments.out)
    print(markdown(report))
    return 1 if report.checks else 0


if __name__ == "__main__":
    sys.exit(main())
