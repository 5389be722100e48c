# SPDX-License-Identifier: Apache-2.0
"""`python -m mxflux.fusions.gfx950 --check`: every shipped configuration, cross-compiled.

Writes docs/results/gfx950-fusions.{md,json} with --write; --check compiles and fails on a spill, a
narrower load, fewer waves than the committed table says, two configurations of one op that give the
same binary, or a looping kernel with more programs than fit at once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from mxflux.fusions import catalog, chain_catalog, crosscompile, mx_pack, tables
from mxflux.fusions.launch import Launch

ARCH = "gfx950"
BANDWIDTH = 8.0e12
"""MI355X, bytes a second by the data sheet; nothing here was timed on one."""

UNITS = 256
"""Compute units of an MI355X, of four SIMDs each."""

LARGE = (512, 1024)
"""A shape whose tensors all pass 2 GiB: their accesses must not be 32-bit buffer instructions."""

RESULTS = Path("docs/results")
COLUMNS = (
    "op", "kernel", "configuration", "S x B", "programs", "VGPR", "SGPR", "LDS", "spills",
    "occupancy", "load", "buffer", "MB", "us at 8 TB/s",
)  # fmt: skip
WIDTHS = {
    "dwordx4": 16,
    "dwordx3": 12,
    "dwordx2": 8,
    "dword": 4,
    "ushort": 2,
    "short": 2,
    "ubyte": 1,
}


@dataclass(frozen=True)
class Row:
    """One compiled kernel: op, configuration, shape, and what it uses."""

    op: str
    kernel: str
    config: str
    seq: int
    batch: int
    programs: int
    loops: bool
    warps: int
    vgprs: int
    sgprs: int
    lds: int
    spills: int
    occupancy: int
    load_bytes: int
    buffer_ops: bool
    megabytes: float
    microseconds: float
    digest: str

    @property
    def key(self) -> str:
        """What identifies the row across versions."""
        return f"{self.op} {self.kernel} {self.config} {self.seq}x{self.batch}"


def compile_rows(arch: str = ARCH) -> list[Row]:
    """Compile every op at every catalogued shape, in the configuration that would run there."""
    rows = []
    with crosscompile.compile_for(arch):
        for op in sorted(set(tables.OPS) - {"reduce_partials"}):
            for seq, batch in catalog.SHAPES:
                rows += _rows(arch, op, seq, batch)
            rows += _rows(arch, op, *LARGE)
            if op.startswith(("qkv", "norm_rope")):
                rows += _rows(arch, op, 512, 32, weight_dtype=torch.float32)
        rows += _chains(arch)
    return rows


def _chains(arch: str) -> list[Row]:
    """The packers with a producer in front, in the tiles that would run there."""
    before = mx_pack.backend, tables.architecture
    mx_pack.backend, tables.architecture = lambda: "hip", lambda _: arch
    try:
        rows = []
        for case in chain_catalog.CASES:
            row = _row(case.kernel, 512, 64, chain_catalog.call(case, 512, 64))
            specs = f"{case.plan} {'dual' if case.dual else 'row'}"
            rows.append(replace(row, config=f"{specs},{row.config}"))
        return rows
    finally:
        mx_pack.backend, tables.architecture = before


def _rows(
    arch: str, op: str, seq: int, batch: int, weight_dtype: torch.dtype = torch.bfloat16
) -> list[Row]:
    config = tables.configuration(arch, op, *catalog.table_rows(op, seq, batch))
    calls = catalog.Factory(arch, weight_dtype=weight_dtype).calls(op, seq, batch, config)
    rows = [_row(op, seq, batch, call) for call in calls]
    if weight_dtype == torch.float32:
        rows = [replace(row, config=row.config + ",fp32 weights") for row in rows]
    return rows


def _row(op: str, seq: int, batch: int, call: catalog.Call) -> Row:
    used = crosscompile.resources(crosscompile.compile_launch(call.launch, call.pointers))
    fixed = {**call.launch.constexprs, **call.launch.options}
    shown = ("BLOCK_M", "BLOCK_N", "CHUNK", "BLOCK_R", "BLOCK_P", "BLOCK_C", "STAGES", "num_warps")
    config = ",".join(f"{k}={fixed[k]}" for k in shown if k in fixed)
    loads = [name for name in used.loads if "load" in name]
    return Row(
        op=op,
        kernel=call.launch.kernel.__name__.removesuffix("_kernel"),
        config=config,
        seq=seq,
        batch=batch,
        programs=call.launch.grid[0],
        loops=_loops(call.launch),
        warps=call.launch.options["num_warps"],
        vgprs=used.vgprs,
        sgprs=used.sgprs,
        lds=used.lds,
        spills=used.spills,
        occupancy=used.occupancy,
        load_bytes=max((WIDTHS.get(name.split("_")[-1], 0) for name in loads), default=0),
        buffer_ops=all(name.startswith("buffer") for name in used.loads),
        megabytes=round(call.bytes / 1e6, 1),
        microseconds=round(call.bytes / BANDWIDTH * 1e6, 1),
        digest=used.digest,
    )


def _loops(launch: Launch) -> bool:
    """Whether a program walks over rows: it has a pipeline, and more than one step of it."""
    names = [name for name in launch.kernel.arg_names if name not in launch.constexprs]
    scalars = dict(zip(names[-len(launch.scalars) :], launch.scalars, strict=True))
    return "STAGES" in launch.constexprs and scalars.get("iterations", 2) > 1


def duplicates(rows: list[Row]) -> list[str]:
    """Configurations of one kernel at one shape class that compile to the same binary: wasted table
    entries.
    """
    seen: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        seen.setdefault((row.op, row.kernel, row.digest), set()).add(row.config)
    return [
        f"{op} {kernel}: same binary for {' and '.join(sorted(configs))}"
        for (op, kernel, _), configs in seen.items()
        if len(configs) > 1
    ]


def waiting(rows: list[Row]) -> list[str]:
    """Looping kernels with more programs than are resident at once: each walks its share of the
    rows, so those that have to wait start when the others end, on a GPU nearly empty.
    """
    found = []
    for row in rows:
        resident = UNITS * 4 * row.occupancy // row.warps
        least = row.batch if row.kernel.startswith("ln") else 1  # a program has one sample
        if row.loops and row.programs > max(resident, least):
            found.append(f"{row.key}: {row.programs} looping programs, {resident} are resident")
    return found


def regressions(rows: list[Row], committed: dict[str, dict[str, Any]]) -> list[str]:
    """What got worse than the committed table: spills, occupancy, load width, buffer
    instructions.
    """
    problems = [f"{row.key}: {row.spills} spills, expected 0" for row in rows if row.spills]
    for row in rows:
        problems += _worse(row, committed.get(row.key))
    gone = sorted(set(committed) - {row.key for row in rows})
    return problems + [f"{key}: in the committed table, no longer compiled" for key in gone]


def _worse(row: Row, before: dict[str, Any] | None) -> list[str]:
    if before is None:
        return [f"{row.key}: not in the committed table; run with --write"]
    found = [
        f"{row.key}: {name} {getattr(row, name)}, was {before[name]}"
        for name in ("occupancy", "load_bytes")
        if getattr(row, name) < before[name]
    ]
    if before["buffer_ops"] and not row.buffer_ops:
        found.append(f"{row.key}: lost its buffer instructions")
    return found


def markdown(rows: list[Row], triton_version: str) -> str:
    """The table for people."""
    head = [
        "# Fused kernels on gfx950, compiled without one",
        "",
        f"Triton {triton_version}; `python -m mxflux.fusions.gfx950 --write`.",
        "Occupancy: waves a SIMD (8 at most), LDS included. Load: bytes a lane of the widest load.",
        "Time: bytes over 8 TB/s, the data sheet's rate; nothing here was timed on an MI355X.",
        "",
        "|" + "|".join(COLUMNS) + "|",
        "|" + "---|" * len(COLUMNS),
    ]
    body = [
        "|" + "|".join(
            map(str, (
                r.op, r.kernel, r.config, f"{r.seq}x{r.batch}", r.programs, r.vgprs, r.sgprs,
                r.lds, r.spills, r.occupancy, f"{r.load_bytes} B", "yes" if r.buffer_ops else "no",
                r.megabytes, r.microseconds,
            ))
        ) + "|"
        for r in rows
    ]  # fmt: skip
    return "\n".join(head + body) + "\n"


def main(argv: list[str] | None = None) -> int:
    """0: as committed or better; 1: a regression; 2: called wrongly."""
    parser = argparse.ArgumentParser(prog="python -m mxflux.fusions.gfx950", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="compare with the committed table")
    action.add_argument("--write", action="store_true", help="write the table")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the table")
    arguments = parser.parse_args(argv)
    if os.environ.get("TRITON_INTERPRET") == "1":
        parser.error("TRITON_INTERPRET=1 is set: unset it, an interpreting process cannot compile")
    import triton  # after the check above: kernels are bound to a mode when they are defined

    rows = compile_rows()
    problems = duplicates(rows) + waiting(rows)
    path = arguments.results / "gfx950-fusions.json"
    if arguments.write:
        arguments.results.mkdir(parents=True, exist_ok=True)
        data = {"triton": triton.__version__, "rows": {row.key: asdict(row) for row in rows}}
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        path.with_suffix(".md").write_text(markdown(rows, triton.__version__), encoding="utf-8")
        problems += [f"{row.key}: {row.spills} spills, expected 0" for row in rows if row.spills]
    elif not path.exists():
        problems.append(f"{path}: missing; run python -m mxflux.fusions.gfx950 --write")
    else:
        problems += regressions(rows, json.loads(path.read_text(encoding="utf-8"))["rows"])
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(rows)} kernels compiled for {ARCH}, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
