# SPDX-License-Identifier: Apache-2.0
"""What a run measured: as a table for people and as JSON for programs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fusion_bench.ops import OPS
from mxflux.fusions import catalog

TARGETS = {"forward": 1.15, "backward": 1.25, "small": 1.6, "compile": 2.0, "enqueue": 30.0}


@dataclass
class Result:
    """One line of the table; times in microseconds."""

    op: str
    seq: int
    batch: int
    direction: str
    implementation: str
    time: float
    bytes: int
    floor: float
    share: float


@dataclass
class Report:
    """Everything the run measured."""

    device: str
    torch: str
    triton: str
    copy_bandwidth: float
    results: list[Result] = field(default_factory=list)
    enqueue: dict[str, float] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)
    misses: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


def judge(report: Report) -> None:
    """Which targets of the issue were missed."""
    compiled = {
        (r.op, r.seq, r.batch, r.direction): r.time
        for r in report.results
        if r.implementation == "torch.compile"
    }
    for r in report.results:
        where = (r.op, r.seq, r.batch, r.direction)
        if r.implementation == "fused":
            report.misses += missed(r, compiled.get(where))
    report.misses += [
        f"{name}: enqueue {value:.1f} us, target {TARGETS['enqueue']:.0f}"
        for name, value in report.enqueue.items()
        if "forward, " in name and value > TARGETS["enqueue"]
    ]


def missed(r: Result, compiled: float | None) -> list[str]:
    """The floor target (none is set at 256x32) and the one against torch.compile (at 512x32)."""
    found, ratio = [], r.time / r.floor
    label = f"{r.op} {r.seq}x{r.batch} {r.direction}"
    limit = TARGETS["small"] if r.batch == 1 else TARGETS[r.direction]
    if (r.seq, r.batch) != (256, 32) and ratio > limit:
        found.append(f"{label}: {ratio:.2f}x of the floor, target {limit}x")
    if compiled and (r.seq, r.batch) == (512, 32) and compiled < TARGETS["compile"] * r.time:
        found.append(f"{label}: {compiled / r.time:.2f}x faster than torch.compile, target 2x")
    return found


COLUMNS = (
    "op", "S x B", "direction", "MB", "floor us", "implementation", "us", "of copy bandwidth",
    "x floor", "x fused",
)  # fmt: skip


def markdown(report: Report) -> str:
    """The table for people."""
    rate = f"{report.copy_bandwidth / 1e12:.2f} TB/s"
    lines = [
        "# Fused kernels, timed",
        "",
        f"{report.device}, torch {report.torch}, triton {report.triton}; copies at {rate}.",
        "bf16, hidden 3072, 24 heads of 128. Medians, L2 cold.",
        "",
        "|" + "|".join(COLUMNS) + "|",
        "|" + "---|" * len(COLUMNS),
    ]  # fmt: skip
    fused = {
        (r.op, r.seq, r.batch, r.direction): r.time
        for r in report.results
        if r.implementation == "fused"
    }
    lines += [
        line(r, fused.get((r.op, r.seq, r.batch, r.direction), r.time)) for r in report.results
    ]
    lines += ["", "|host enqueue|us|", "|---|---|"]
    lines += [f"|{name}|{value:.1f}|" for name, value in report.enqueue.items()]
    parts = {"Checks": report.checks, "Missed targets": report.misses, "Skipped": report.skipped}
    for title, items in parts.items():
        lines += ["", f"{title}:", *(f"- {item}" for item in items or ["none"])]
    return "\n".join(lines) + "\n"


def line(r: Result, fused: float) -> str:
    """One row."""
    cells = (
        r.op, f"{r.seq}x{r.batch}", r.direction, f"{r.bytes / 1e6:.1f}", f"{r.floor:.1f}",
        r.implementation, f"{r.time:.1f}", f"{100 * r.share:.0f}%", f"{r.time / r.floor:.2f}",
        f"{r.time / fused:.2f}",
    )  # fmt: skip
    return "|" + "|".join(cells) + "|"


def place(r: Result) -> tuple[int, int, bool]:
    """Order of the table: op, shape, forward first; implementations as they were timed."""
    names = [op.name for op in OPS]
    shapes = [*catalog.SHAPES, (r.seq, r.batch)]
    return names.index(r.op), shapes.index((r.seq, r.batch)), r.direction == "backward"


def write(report: Report, out: Path) -> None:
    """fusions.md for people, fusions.json for programs."""
    (out / "fusions.md").write_text(markdown(report), encoding="utf-8")
    data = json.dumps(asdict(report), indent=1)
    (out / "fusions.json").write_text(data + "\n", encoding="utf-8")
