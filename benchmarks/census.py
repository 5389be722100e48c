# SPDX-License-Identifier: Apache-2.0
"""What a census costs: the same training step with and without one, in turns, in one run.

    PYTHONPATH=overlay python benchmarks/census.py --device cuda --out docs/results/census-h200.md

A step is forward and backward of a stack of MX linears as wide as Flux's. The records of one step
of Flux 12B (304 linears) are timed alone too: their cost does not depend on the size of a GEMM.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from mxflux.mx import tally
from mxflux.mx.linear import MXLinear
from mxflux.mx.plans import mxfp4

LINEARS_12B, GEMMS, QUANTIZATIONS = 304, 3, 3
LIMIT = 0.01


def stack(device: str, width: int, depth: int) -> torch.nn.Module:
    """Linears of one width, without stochastic rounding."""
    backend = "triton" if device == "cuda" else "emulated"
    plan = mxfp4(backend, stochastic_gradients=False)
    linears = [
        MXLinear(width, width, plan, device=device, dtype=torch.bfloat16) for _ in range(depth)
    ]
    return torch.nn.Sequential(*linears)


def seconds(step: Callable[[], None], device: str) -> float:
    """Wall time of one step, the device's work included."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def in_turns(device: str, tokens: int, width: int, depth: int, rounds: int) -> dict[str, float]:
    """Medians of the step with the census off and on, taken alternately; and their ratio's."""
    net = stack(device, width, depth)
    x = torch.randn(tokens, width, device=device).bfloat16().requires_grad_()

    def step() -> None:
        net(x).sum().backward()

    times: dict[str, list[float]] = {"off": [], "on": []}
    for number in range(rounds + 2):
        for kind in ("off", "on") if number % 2 else ("on", "off"):
            with tally.census(net) if kind == "on" else contextlib.nullcontext():
                took = seconds(step, device)
            if number >= 2:
                times[kind].append(took)
    found = {kind: statistics.median(took) for kind, took in times.items()}
    return found | {"records": float(depth * (GEMMS + QUANTIZATIONS))}


def records_12b() -> float:
    """Seconds that the records of one micro-step of Flux 12B take, best of five."""
    sites = [tally.site_named(f"transformer.layers.{n}.linear") for n in range(LINEARS_12B)]
    best = float("inf")
    for _ in range(5):
        with tally.census():
            start = time.perf_counter()
            for site in sites:
                for direction in tally.DIRECTIONS:
                    tally.record_gemm(site, direction, "e2m1", "triton")
                for role in ("input:dual", "weight:dual", "grad_output:dual"):
                    tally.record_quantize(site, role, "e2m1", "triton")
            best = min(best, time.perf_counter() - start)
    return best


def main() -> int:
    """Print or write the table; exit 1 where a step got more than 1% slower."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    tokens, width, depth = (8192, 3072, 8) if options.device == "cuda" else (256, 512, 4)
    found = in_turns(options.device, tokens, width, depth, options.rounds)
    each = records_12b() / (LINEARS_12B * (GEMMS + QUANTIZATIONS))
    share = found["records"] * each / found["off"]
    machine = platform.processor() or platform.machine()
    name = torch.cuda.get_device_name() if options.device == "cuda" else machine
    text = "\n".join([
        "# Cost of a census",
        "",
        f"- command: `python benchmarks/census.py --device {options.device}`",
        f"- date: {dt.datetime.now(dt.timezone.utc):%Y-%m-%d %H:%M} UTC",
        f"- machine: {name}, torch {torch.__version__}",
        f"- step: {depth} linears of {width} x {width}, {tokens} tokens, {options.rounds} of each",
        "",
        "| what | |",
        "|---|---:|",
        f"| step, census off | {found['off'] * 1e3:.2f} ms |",
        f"| step, census on | {found['on'] * 1e3:.2f} ms |",
        f"| measured difference | {found['on'] / found['off'] - 1:+.2%} |",
        f"| one record | {each * 1e6:.2f} us |",
        f"| {found['records']:.0f} records of this step, of its time | {share:.3%} |",
        f"| {LINEARS_12B * (GEMMS + QUANTIZATIONS)} records of Flux 12B | {each * 1824e3:.1f} ms |",
        "",
    ])  # fmt: skip
    print(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")
    return 1 if share > LIMIT else 0


if __name__ == "__main__":
    raise SystemExit(main())
