# SPDX-License-Identifier: Apache-2.0
"""Tables of a run for people."""

from __future__ import annotations

import datetime as dt
import sys

import torch

from packer_bench.measure import SHAPE, Row
from packer_bench.peers import peers

TARGETS = {"row": 1.4, "column": 2.0, "dual": 2.0, "peer": 3.0}


def verdict(ratio: float, limit: float, at_most: bool = True) -> str:
    """ratio with the word for its target."""
    met = ratio <= limit if at_most else ratio >= limit
    return f"{ratio:.2f}x ({'met' if met else 'MISSED'}: {'<=' if at_most else '>='} {limit})"


def packer_table(rows: list[Row]) -> list[str]:
    """Markdown lines of our own packers."""
    lines = [
        "| format | packs | us | byte floor | instruction floor | registers | over its floor |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for r in rows:
        issue = "-" if r.issue is None else f"{r.issue:.0f}"
        ratio = verdict(r.time / r.floor, TARGETS[r.kind])
        cells = (r.name, r.kind, f"{r.time:.0f}", f"{r.memory:.0f}", issue, r.registers, ratio)
        lines.append(f"| {' | '.join(str(c) for c in cells)} |")
    return lines


def peer_table(x: torch.Tensor, rows: list[Row]) -> list[str]:
    """Markdown lines of the peers; columns alone have none."""
    lines = ["| format | packs | peer | us | ours is faster by |", "|---|---|---|---:|---|"]
    for r in rows:
        if r.kind == "column":
            continue
        for peer, found in peers(x, r.kind, r.name):
            number = found if isinstance(found, str) else f"{found:.0f}"
            ratio = (
                "-"
                if isinstance(found, str)
                else verdict(found / r.time, TARGETS["peer"], at_most=False)
            )
            lines.append(f"| {r.name} | {r.kind} | {peer} | {number} | {ratio} |")
        torch.compiler.reset()
    return lines


def machine(bandwidth: float) -> list[str]:
    """What ran this."""
    import triton

    properties = torch.cuda.get_device_properties(0)
    versions = f"torch {torch.__version__}, triton {triton.__version__}"
    python = sys.version.split()[0]
    when = dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return [
        f"- command: `python benchmarks/packers.py {' '.join(sys.argv[1:])}`",
        f"- date: {when}",
        f"- machine: {properties.name}, {properties.multi_processor_count} SMs",
        f"- software: {versions}, python {python}",
        f"- copy bandwidth in this run: {bandwidth / 1e12:.2f} TB/s (read plus written)",
        f"- shape: {SHAPE[0]} x {SHAPE[1]} bf16; medians of CUDA events, cold L2",
    ]
