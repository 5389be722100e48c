# SPDX-License-Identifier: Apache-2.0
"""Compile every MX kernel for gfx950 without a GPU and hold its resources to a committed table.

python -m mxflux.mx.gfx950 --check docs/results/gfx950-mx.json      compare, exit 1 on regression
python -m mxflux.mx.gfx950 --write docs/results/gfx950-mx.json      measure and write
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mxflux.mx.blob import MXBlob
from mxflux.mx.formats import FORMATS
from mxflux.mx.layouts import AITER_A4W4_A, AITER_A4W4_B, AITER_A6W6
from mxflux.mx.spec import QuantSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxflux.mx.compile_only import Resources

TABLE = "docs/results/gfx950-mx.json"
#: Tokens x features of a Flux 12B activation, and one whose storage exceeds 2 GiB.
SHAPE, RAGGED, LARGE = (32768, 3072), (4608, 3000), (131072, 12288)
MIN_OCCUPANCY = 4
#: Registers may grow this much with another compiler before the check fails.
VGPR_SLACK = 8


def packer_cases() -> dict[str, tuple[tuple[int, int], str, str]]:
    """Name -> shape, row spec text, column spec text ("" = none)."""
    cases = {}
    for name in FORMATS:
        text = str(QuantSpec(name))
        for kind in ("row", "column", "dual"):
            cases[f"{name} {kind}"] = (
                SHAPE,
                text if kind != "column" else "",
                text if kind != "row" else "",
            )
    turned = {n: str(QuantSpec("e2m1", hadamard=n)) for n in (16, 32)}
    square = str(QuantSpec("e2m1", block_2d=True))
    random = str(QuantSpec("e2m1", stochastic=True))
    a4w4 = [str(QuantSpec("e2m1", layout=layout)) for layout in (AITER_A4W4_A, AITER_A4W4_B)]
    a6w6 = str(QuantSpec("e2m3", hadamard=32, layout=AITER_A6W6))
    six, eight = str(QuantSpec("e2m3", "rceil")), str(QuantSpec("e4m3", "even", stochastic=True))
    cases |= {
        "e2m1 dual, columns rotated 16": (SHAPE, str(QuantSpec()), turned[16]),
        "e2m1 dual, both rotated 32": (SHAPE, turned[32], turned[32]),
        "e2m1 dual, square blocks": (SHAPE, square, square),
        "e2m1 dual, stochastic": (SHAPE, random, random),
        "e4m3 row, even, stochastic": (SHAPE, eight, ""),
        "e2m3 row, rceil": (SHAPE, six, ""),
        "e2m1 dual, aiter a4w4": (SHAPE, a4w4[0], a4w4[1]),
        "e2m3 row, aiter a6w6": (SHAPE, a6w6, ""),
        "e2m3 dual, aiter a6w6": (SHAPE, a6w6, a6w6),
        "e2m1 dual, ragged": (RAGGED, str(QuantSpec()), str(QuantSpec())),
        "e2m1 dual, more than 2 GiB": (LARGE, str(QuantSpec()), str(QuantSpec())),
    }
    return cases


def compile_packer(shape: tuple[int, int], row: str, col: str) -> Resources:
    """Compile the very launch that packs a bf16 matrix of that shape."""
    from mxflux.mx.compile_only import GFX950, compiling_for, resources
    from mxflux.mx.kernels.packers import mx_pack_kernel
    from mxflux.mx.triton_packers import plan

    x = torch.empty(shape, dtype=torch.bfloat16, device="meta")
    rng = torch.empty(2, dtype=torch.int64, device="meta")
    launch = plan(x, rng, row, col, backend="hip")
    with compiling_for(GFX950):
        kernel = mx_pack_kernel.warmup(*launch.arguments, grid=(1,), **launch.keywords)
    return resources(kernel, launch.keywords["num_warps"])


def compile_gemm(fmt: str, rows: int) -> Resources:
    """Compile the dot_scaled GEMM of (rows, 3072) x (3072, 3072)^T in one format."""
    from mxflux.mx.backends.triton_dot import plan
    from mxflux.mx.compile_only import GFX950, compiling_for, resources
    from mxflux.mx.kernels.gemm import mx_gemm_kernel

    spec, k = QuantSpec(fmt), 3072

    def blob(count: int) -> MXBlob:
        data = torch.empty(count, k * spec.element.bits // 8, dtype=torch.uint8, device="meta")
        scale = torch.empty(count, k // 32, dtype=torch.uint8, device="meta")
        return MXBlob(data, scale, count, k, spec)

    out = torch.empty(rows, k, dtype=torch.bfloat16, device="meta")
    _, arguments, keywords = plan(blob(rows), blob(k), out)
    with compiling_for(GFX950):
        kernel = mx_gemm_kernel.warmup(*arguments, grid=(1,), **keywords)
    if "v_mfma_scale" not in kernel.asm["amdgcn"]:
        raise RuntimeError(f"dot_scaled of {fmt} did not become a scaled MFMA on gfx950")
    return resources(kernel, keywords["num_warps"])


def measure(only: str = "") -> dict[str, Resources]:
    """Resources of every case whose name contains `only`."""
    found = {}
    for name, case in packer_cases().items():
        if only in name:
            found[f"pack: {name}"] = compile_packer(*case)
    for fmt in ("e2m1", "e4m3", "e5m2"):
        for rows in (32768, 32):
            name = f"gemm: {fmt}, {rows} rows"
            if only in name:
                found[name] = compile_gemm(fmt, rows)
    return found


def violations(found: dict[str, Resources]) -> Iterator[str]:
    """Rules that hold without a table: no spill, no scratch, occupancy, no two equal binaries."""
    seen: dict[str, str] = {}
    for name, r in found.items():
        if r.spills or r.scratch:
            yield f"{name}: {r.spills} spilled registers, {r.scratch} bytes of scratch"
        if name.startswith("pack") and r.occupancy < MIN_OCCUPANCY:
            yield f"{name}: occupancy {r.occupancy}, at least {MIN_OCCUPANCY} wanted"
        if r.binary in seen:
            yield f"{name}: the same binary as {seen[r.binary]}: a setting does nothing"
        seen.setdefault(r.binary, name)


def regressions(found: dict[str, Resources], table: dict[str, Any]) -> Iterator[str]:
    """What got worse than the committed table, or is not in it."""
    for name, r in found.items():
        if name not in table:
            yield f"{name}: not in the table; write it again"
            continue
        was = table[name]
        if r.vgpr > was["vgpr"] + VGPR_SLACK:
            yield f"{name}: {r.vgpr} VGPR, was {was['vgpr']}"
        if r.occupancy < was["occupancy"]:
            yield f"{name}: occupancy {r.occupancy}, was {was['occupancy']}"
        if r.lds > was["lds"]:
            yield f"{name}: {r.lds} bytes of LDS, was {was['lds']}"


def unmasked_loads(source: str, path: str) -> Iterator[str]:
    """Loads with `mask=` and without `other=`: undefined where the mask is off, on a GPU."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) != "tl.load":
            continue
        names = {k.arg for k in node.keywords}
        if ("mask" in names or len(node.args) > 1) and "other" not in names:
            yield f"{path}:{node.lineno}: tl.load with a mask and without other="


def kernel_sources() -> list[Path]:
    """The files that hold Triton kernels."""
    return sorted((Path(__file__).parent / "kernels").glob("*.py"))


def render(found: dict[str, Resources]) -> str:
    """The table as Markdown."""
    lines = [
        "| kernel | VGPR | SGPR | LDS | spills | occupancy |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {name} | {r.vgpr} | {r.sgpr} | {r.lds} | {r.spills} | {r.occupancy} |"
        for name, r in found.items()
    ]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Exit 0 when every rule holds, 1 otherwise, 4 when nothing can be compiled here."""
    parser = argparse.ArgumentParser(prog="python -m mxflux.mx.gfx950", description=__doc__)
    parser.add_argument("--check", metavar="TABLE", nargs="?", const=TABLE)
    parser.add_argument("--write", metavar="TABLE")
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    options = parser.parse_args(argv)
    if os.environ.get("TRITON_INTERPRET") == "1":
        print("TRITON_INTERPRET=1 is set: unset it, nothing compiles in the interpreter")
        return 4
    table: dict[str, Any] = {}
    if options.check:
        if not Path(options.check).is_file():
            print(f"{options.check}: no such table; --write {options.check} makes it")
            return 4
        table = json.loads(Path(options.check).read_text(encoding="utf-8"))["kernels"]
    import triton

    found = measure(options.only)
    print(render(found))
    problems = list(violations(found))
    for path in kernel_sources():
        problems += unmasked_loads(path.read_text(encoding="utf-8"), path.name)
    if options.check:
        problems += regressions(found, table)
    if options.write and not problems:
        content = {
            "command": f"python -m mxflux.mx.gfx950 --write {options.write}",
            "triton": triton.__version__,
            "torch": torch.__version__,
            "kernels": {name: r.as_dict() for name, r in found.items()},
        }
        Path(options.write).parent.mkdir(parents=True, exist_ok=True)
        Path(options.write).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for problem in problems:
        print(f"FAIL {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
