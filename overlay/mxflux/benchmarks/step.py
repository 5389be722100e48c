# SPDX-License-Identifier: Apache-2.0
"""A step of Flux, timed and taken apart: kernels by family, gaps, floors, peers.

    python -m mxflux.benchmarks.step --preset flux_12b --blocks joint,single --micro-batch 32 \\
        --device cuda --compare eager,compile,diffusers

Forward and backward of one joint and one single block (with their embedders and head), or of a
whole preset (--blocks all); --mode train adds AdamW. Every variant runs in a process of its own, so
that one which crashes costs its own row. Medians; inputs, sizes and arithmetic are alike for all.
Importable with the overlay and Megatron-core on PYTHONPATH, or in the environment of a tree.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from mxflux.benchmarks import peers
from mxflux.benchmarks.measure import measured_here, peaks
from mxflux.benchmarks.options import batches, parser, variants_of, workload
from mxflux.benchmarks.report import markdown
from mxflux.benchmarks.results import Result
from mxflux.benchmarks.workers import run_worker

if TYPE_CHECKING:
    import argparse

    from mxflux.benchmarks.workload import Workload


def versions() -> dict[str, str]:
    """Distributions that decide the numbers, as far as they are installed."""
    from importlib import metadata

    found = {"python": sys.version.split()[0], "torch": torch.__version__}
    wanted = {"triton", "megatron-core", *peers.NAMES}
    installed = ((d.metadata["Name"], d.version) for d in metadata.distributions())
    return found | {name: version for name, version in installed if name in wanted}


def run(options: argparse.Namespace) -> Result:
    """All variants at all batches."""
    chosen, sizes = variants_of(options.compare), batches(options)
    work = workload(options, sizes[0])
    on_gpu = options.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        raise ValueError(f"--device cuda, but torch {torch.__version__} sees no GPU")
    for name in dict.fromkeys(variant.peer for variant in chosen if variant.peer):
        peers.require(name)
    peak, bandwidth = peaks(options.device)
    result = Result(
        command=f"python -m mxflux.benchmarks.step {' '.join(sys.argv[1:])}",
        device=torch.cuda.get_device_name() if on_gpu else "cpu",
        versions=versions(),
        preset=options.preset,
        blocks=options.blocks,
        mode=options.mode,
        precision=options.precision,
        tokens=(work.image, work.text),
        peak_tflops=peak,
        copy_bandwidth=bandwidth,
        work={str(b): _work(workload(options, b)) for b in sizes},
    )
    if on_gpu:
        torch.cuda.empty_cache()
    for batch in sizes:
        for variant in chosen:
            start = time.monotonic()
            result.rows.append(run_worker(options, variant, batch))
            took = time.monotonic() - start
            print(f"{variant.name}, batch {batch}: {took:.0f} s", file=sys.stderr, flush=True)
            _write(result, options.out)
    return result


def _work(work: Workload) -> dict[str, int]:
    return {"flops": work.flops, "floor_bytes": work.floor_bytes}


def _write(result: Result, out: Path | None) -> None:
    if out is None:
        return
    out.mkdir(parents=True, exist_ok=True)
    (out / "step.md").write_text(markdown(result), encoding="utf-8")
    text = json.dumps(asdict(result), indent=1)
    (out / "step.json").write_text(text + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """0: every variant has its time; 1: one has none; 2: called wrongly."""
    options = parser().parse_args(argv)
    if options.worker:
        row = measured_here(options)
        options.out.write_text(json.dumps(asdict(row)), encoding="utf-8")
        return 0
    try:
        result = run(options)
    except ValueError as error:
        print(f"mxtree bench step: {error}", file=sys.stderr)
        return 2
    _write(result, options.out)
    print(markdown(result))
    return 1 if any(row.error for row in result.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
