# SPDX-License-Identifier: Apache-2.0
"""What a run measured: as a table for people and as JSON for programs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from chain_bench.predictions import TARGETS, predicted
from mxflux.fusions.catalog import HIDDEN

COLUMNS = (
    "chain", "plan", "S x B", "fused us", "unfused us", "fused / unfused", "target", "x floor",
    "predicted",
)  # fmt: skip


@dataclass
class Result:
    """One line; microseconds."""

    chain: str
    key: str
    plan: str
    seq: int
    batch: int
    fused: float
    unfused: float
    floor: float


@dataclass
class Report:
    """Everything the run measured."""

    device: str
    torch: str
    triton: str
    copy_bandwidth: float
    results: list[Result] = field(default_factory=list)
    checks: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    sweep: dict[str, dict[str, float]] = field(default_factory=dict)
    seconds: float = 0.0
    compile_seconds: float = 0.0


def markdown(report: Report) -> str:
    """The tables for people."""
    rate = f"{report.copy_bandwidth / 1e12:.2f} TB/s"
    lines = [
        "# Fused MX chains, timed",
        "",
        f"{report.device}, torch {report.torch}, triton {report.triton}; copies at {rate}.",
        f"bf16, hidden {HIDDEN}, medians, cold L2.",
        "",
        "|" + "|".join(COLUMNS) + "|",
        "|---|---|---|---:|---:|---:|---|---:|---|",
        *(_line(r) for r in report.results),
        "",
        "Checks:",
        *(f"- {name}: {value}" for name, value in report.checks.items()),
        "",
        "Failures:",
        *(f"- {problem}" for problem in report.failures or ["none"]),
        "",
        *_whole_mlp(report),
    ]
    for case, times in report.sweep.items():
        best = min(times, key=lambda t: times[t])
        listed = ", ".join(f"{tiles} {time:.0f}" for tiles, time in times.items())
        lines += ["", f"Tiles of {case}, 512x64, us: {listed}; best {best}"]
    seconds = f"{report.seconds:.0f} seconds in all, {report.compile_seconds:.0f} of them compiling"
    return "\n".join([*lines, "", f"{seconds} ahead in other processes."]) + "\n"


def _whole_mlp(report: Report) -> list[str]:
    """The target of the MLP is set on both directions together."""
    both: dict[tuple[str, int, int], list[float]] = {}
    for r in (r for r in report.results if r.key.startswith("mlp")):
        sums = both.setdefault((r.plan, r.seq, r.batch), [0.0, 0.0])
        sums[0], sums[1] = sums[0] + r.fused, sums[1] + r.unfused
    return [
        f"- whole MLP, {plan} {seq}x{batch}: {a:.0f} / {b:.0f} us = {a / b:.2f} (target 0.8)"
        for (plan, seq, batch), (a, b) in both.items()
    ]


def _line(r: Result) -> str:
    ratio, target = r.fused / r.unfused, TARGETS[r.key]
    met = "met" if ratio <= target else "MISSED"
    cells = (
        r.chain, r.plan, f"{r.seq}x{r.batch}", f"{r.fused:.0f}", f"{r.unfused:.0f}",
        f"{ratio:.2f}", f"<= {target} {met}", f"{r.fused / r.floor:.2f}",
        predicted(r.plan, r.key, (r.seq, r.batch)),
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def write(report: Report, out: Path) -> None:
    """chains.md for people, chains.json for programs."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "chains.md").write_text(markdown(report), encoding="utf-8")
    data = json.dumps(asdict(report), indent=1)
    (out / "chains.json").write_text(data + "\n", encoding="utf-8")
