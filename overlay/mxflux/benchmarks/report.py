# SPDX-License-Identifier: Apache-2.0
"""The tables of a step benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxflux.benchmarks.variants import VARIANTS

if TYPE_CHECKING:
    from mxflux.benchmarks.results import Measured, Result
    from mxflux.benchmarks.timeline import Timeline

NAMES = {
    "eager": "mxtree, gates off",
    "fused": "mxtree, fusions on",
    "compile": "mxtree, torch.compile a block",
    "compile-fused": "mxtree, torch.compile a block, fusions on",
    "diffusers": "diffusers",
    "diffusers-compile": "diffusers, torch.compile a block",
    "torchtitan": "torchtitan",
    "torchtitan-compile": "torchtitan, torch.compile a block",
}
PREDICTED = {
    ("step", "bf16", 32): {
        "eager": 55.0, "fused": 38.5, "compile": 41.0, "compile-fused": 37.5,
        "diffusers": 52.0, "diffusers-compile": 42.7,
        "torchtitan": 53.0, "torchtitan-compile": 41.0,
    },
    ("step", "bf16", 64): {
        "eager": 109.0, "fused": 76.0, "compile": 81.0, "compile-fused": 74.0,
        "diffusers": 103.0, "diffusers-compile": 83.0,
        "torchtitan": 105.0, "torchtitan-compile": 81.0,
    },
}  # fmt: skip
"""Milliseconds of one joint and one single block of the 12B model on an H200, written down before
the first measurement: (mode, precision, batch) -> variant. diffusers': measured earlier elsewhere.
"""


COLUMNS = (
    "implementation", "ms", "predicted ms", "images/s", "of the matrix peak", "forward ms",
    "peak GiB", "kernels", "idle", "host-bound", "x the fastest peer",
)  # fmt: skip


def markdown(result: Result) -> str:
    """Summary, floors, then a section a variant."""
    lines = [
        f"# A step of {result.preset}, blocks {result.blocks}, {result.precision}, {result.mode}",
        "",
        f"`{result.command}`",
        "",
        f"{result.device}; " + ", ".join(f"{k} {v}" for k, v in result.versions.items()),
        f"{result.tokens[0]} image and {result.tokens[1]} text tokens a sample; medians.",
    ]
    if result.peak_tflops:
        lines.append(
            f"Measured here: {result.peak_tflops:.0f} TFLOP/s (bf16 matrix product), copies at "
            f"{result.copy_bandwidth / 1e12:.2f} TB/s."
        )
    for batch in dict.fromkeys(row.batch for row in result.rows):
        lines += _summary(result, batch)
    for row in result.rows:
        if row.timeline is not None:
            lines += _details(result, row, row.timeline)
    return "\n".join(lines) + "\n"


def _summary(result: Result, batch: int) -> list[str]:
    rows = [row for row in result.rows if row.batch == batch]
    lines = ["", f"## Batch {batch}", "", *_floors(result, batch), ""]
    lines += ["|" + "|".join(COLUMNS) + "|", "|---|" + "---:|" * (len(COLUMNS) - 1)]
    peers = [r.milliseconds for r in rows if VARIANTS[r.variant].peer and not r.error]
    return lines + [_row(result, row, min(peers, default=0.0)) for row in rows]


def _floors(result: Result, batch: int) -> list[str]:
    work = result.work[str(batch)]
    flops, least = work["flops"], work["floor_bytes"]
    text = f"{flops / 1e12:.2f} TFLOP; {least / 1e9:.2f} GB between the GEMMs at the least."
    if result.peak_tflops:
        matrix = flops / result.peak_tflops / 1e9
        memory = least / result.copy_bandwidth * 1e3
        text += (
            f" Floors: {matrix:.1f} ms of matrix products, {memory:.1f} ms of memory traffic, "
            f"{matrix + memory:.1f} ms one after the other."
        )
    return [text]


def _row(result: Result, row: Measured, peer: float) -> str:
    name = NAMES[row.variant]
    known = PREDICTED.get((result.mode, result.precision, row.batch), {})
    applies = (result.preset, result.blocks) == ("flux_12b", "joint,single")
    guess = f"{known[row.variant]:.1f}" if applies and row.variant in known else ""
    if row.error:
        return f"| {name} | failed: {row.error} | {guess} | | | | | | | | |"
    flops = result.work[str(row.batch)]["flops"]
    share = flops / row.milliseconds / 1e9 / result.peak_tflops if result.peak_tflops else 0.0
    line = row.timeline
    idle = f"{100 * line.idle / line.span:.1f}%" if line else ""
    host = f"{100 * line.host_bound / line.span:.1f}%" if line else ""
    cells = (
        name, f"{row.milliseconds:.2f}", guess, f"{row.batch / row.milliseconds * 1e3:.0f}",
        f"{100 * share:.0f}%" if share else "", f"{row.forward:.2f}", f"{row.peak_memory:.1f}",
        line.kernels if line else "", idle, host, f"{peer / row.milliseconds:.2f}" if peer else "",
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def _details(result: Result, row: Measured, line: Timeline) -> list[str]:
    title = f"### {NAMES[row.variant]}, batch {row.batch}"
    lines = [
        "",
        title,
        "",
        f"Profiled step {line.span / 1e3:.2f} ms: busy {line.busy / 1e3:.2f},",
        f"host-bound {line.host_bound / 1e3:.2f}, gaps between launched kernels",
        f"{line.launch_bound / 1e3:.2f}. {row.parameters:,} parameters.",
    ]
    if row.engaged:
        lines.append("Engaged: " + ", ".join(f"{k} {v}" for k, v in row.engaged.items()) + ".")
    lines += ["", "| family | kernels | ms | of the step |", "|---|---:|---:|---:|"]
    for name, (count, time) in line.families.items():
        lines.append(f"| {name} | {count} | {time / 1e3:.3f} | {100 * time / line.span:.1f}% |")
    matrix = sum(line.families.get(n, (0, 0.0))[1] for n in ("GEMM", "MX GEMM", "attention"))
    if result.peak_tflops and matrix:
        work = result.work[str(row.batch)]
        rest = line.busy - matrix
        memory = work["floor_bytes"] / result.copy_bandwidth * 1e6
        rate = work["flops"] / matrix / 1e6
        lines += [
            "",
            f"GEMMs and attention: {rate:.0f} TFLOP/s. The rest: {rest / 1e3:.2f} ms,",
            f"{rest / memory:.2f}x of its floor of {memory / 1e3:.2f} ms.",
        ]
    lines += ["", "| slowest kernels | calls | ms |", "|---|---:|---:|"]
    lines += [f"| `{name}` | {n} | {time / 1e3:.3f} |" for name, n, time in line.slowest]
    return lines
