# SPDX-License-Identifier: Apache-2.0
"""The MX packers on one GPU: checked byte for byte, then timed against their floor and their peers.

    python benchmarks/packers.py --device cuda --out docs/results/packers-h200.md
    python benchmarks/packers.py --device cuda --sweep --budget 60 --out out/packers-sweep.md

The floor of a packer is the larger of its bytes over the copy bandwidth measured in the same run
and its instructions over the issue rate; ratios are times over it. Nothing is timed unless every
packer equals the reference on large random, adversarial and exhaustive inputs.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "overlay"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from packer_bench.checks import check_all, check_gemm
from packer_bench.measure import KINDS, SHAPE, TIMED, measure
from packer_bench.report import machine, packer_table, peer_table
from packer_bench.sweep import sweep_table

from mxflux.fusions import timing


def report(options: argparse.Namespace) -> str:
    """Check, time, and write the page."""
    checks = [] if options.skip_checks else [*check_all("cuda")]
    torch.cuda.empty_cache()
    bandwidth = timing.copy_bandwidth()
    x = torch.randn(SHAPE, device="cuda").bfloat16()
    lines = ["# MX packers", "", *machine(bandwidth), ""]
    if options.sweep:
        lines += ["## Tiles", "", *sweep_table(x, bandwidth, options.budget), ""]
    lines += ["## Equality with the reference", ""]
    lines += [f"- {c}" for c in checks] or ["- skipped (--skip-checks)"]
    rows = [measure(x, kind, name, bandwidth) for name in TIMED for kind in KINDS]
    lines += ["", "## Packers", "", *packer_table(rows), ""]
    if not options.sweep:
        lines += ["## Peers", "", *peer_table(x, rows), ""]
        lines += ["## GEMM backends against fp64, [1000, 3072] x [520, 3072]^T", ""]
        lines += ["| backend | format | relative error | us |", "|---|---|---:|---:|"]
        lines += [*check_gemm("cuda"), ""]
    return "\n".join(lines)


def main() -> int:
    """Exit 0 with a table written, 4 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda"], required=True)
    parser.add_argument("--out", type=Path, required=True, help="Markdown file to write")
    parser.add_argument("--sweep", action="store_true", help="time every tile instead of the peers")
    parser.add_argument("--budget", type=float, default=60, help="seconds that --sweep may take")
    parser.add_argument("--skip-checks", action="store_true", help="time without comparing bytes")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device here: this benchmark times GPU kernels and has nothing to run")
        return 4
    start = time.monotonic()
    page = report(options)
    page += f"\n{time.monotonic() - start:.0f} seconds in all.\n"
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(page, encoding="utf-8")
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
