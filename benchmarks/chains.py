# SPDX-License-Identifier: Apache-2.0
"""The fused MX chains against the kernels they replace, on one GPU, in one table.

    python benchmarks/chains.py --device cuda --out out/chains            # check, time, sweep tiles
    python benchmarks/chains.py --device cuda --plans mxfp6 --shapes 512x64 --no-sweep

Checked first: bytes against the unfused kernels and the packer, gradients against fp64, bits from
run to run. Times are medians of CUDA events with a cold L2; the floor is the least bytes over the
copy bandwidth of the same run. Unfused is what runs with the gates off: this project's own fused
norms and packers, torch's elementwise kernels. The predictions were written before the first run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "overlay"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from chain_bench import measure, warm
from chain_bench.checks import check
from chain_bench.report import Report, markdown, write

from mxflux.fusions import chain_catalog, timing

Shape = tuple[int, int]
PLANS = tuple(name for name in chain_catalog.PLANS if name != "mxfp8")
SHAPES = ((512, 64), (512, 32), (4608, 1))
CHECKED = ((512, 8), (77, 3))


def run(
    plans: Sequence[str], shapes: Sequence[Shape], checks: bool, sweep: bool, budget: float,
    save: Callable[[Report], None],
) -> Report:  # fmt: skip
    """Compile, check, time, sweep; saved after each part."""
    import triton

    start = time.monotonic()
    checked = CHECKED if checks else ()
    warm.warm(plans, checked, shapes, sweep)
    compiled = time.monotonic() - start
    name = torch.cuda.get_device_name()
    report = Report(name, torch.__version__, triton.__version__, timing.copy_bandwidth())
    report.compile_seconds = compiled
    for plan in plans:
        for seq, batch in checked:
            check(report, seq, batch, plan, chain_catalog.PLANS[plan])
        save(report)
    for seq, batch in shapes:
        for plan in plans:
            measure.time_chains(report, seq, batch, plan, chain_catalog.PLANS[plan])
            torch.cuda.empty_cache()
            save(report)
    if sweep:
        measure.sweep(report, plans, start + budget)
    report.seconds = time.monotonic() - start
    return report


def _shape(text: str) -> Shape:
    seq, _, batch = text.partition("x")
    if not (seq.isdecimal() and batch.isdecimal() and int(seq) and int(batch)):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected SEQxBATCH, as 512x64")
    return int(seq), int(batch)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=["cuda"], required=True)
    parser.add_argument("--out", type=Path, default=Path("out/chains"))
    parser.add_argument("--plans", nargs="+", choices=PLANS, default=PLANS, metavar="PLAN",
                        help=f"of {', '.join(PLANS)}; default: all")  # fmt: skip
    parser.add_argument("--shapes", nargs="+", type=_shape, default=SHAPES, metavar="SEQxBATCH",
                        help="shapes to time; default: 512x64 512x32 4608x1")  # fmt: skip
    parser.add_argument("--no-checks", action="store_true", help="time only")
    parser.add_argument("--no-sweep", action="store_true", help="try no other tiles")
    parser.add_argument(
        "--budget", type=float, default=200, help="seconds after which no tile is tried"
    )
    return parser


def main(argv: list[str] | None = None) -> int:
    """0: correct, whatever the times; 1: a check failed; 2: called wrongly."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if not torch.cuda.is_available():
        parser.error(
            "no GPU; the chains' correctness is tested on the CPU by tests/overlay/fusions"
        )
    report = run(
        arguments.plans, arguments.shapes, not arguments.no_checks, not arguments.no_sweep,
        arguments.budget, lambda unfinished: write(unfinished, arguments.out),
    )  # fmt: skip
    write(report, arguments.out)
    print(markdown(report))
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
