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
import concurrent.futures
import datetime as dt
import importlib.metadata
import importlib.util
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "overlay"))

import torch

from mxflux.fusions import timing
from mxflux.mx import (
    FORMATS,
    LAYOUTS,
    MXBlob,
    QuantSpec,
    ScaleMode,
    gemm,
    quantize_dual,
    quantize_rows,
    reference,
    rng_state,
)
from mxflux.mx.codes import pack_codes
from mxflux.mx.packers import reference_pack
from mxflux.mx.triton_packers import TILES, Tile, pack, plan

SHAPE = (32768, 3072)
TARGETS = {"row": 1.4, "column": 2.0, "dual": 2.0, "peer": 3.0}
TIMED = ("e2m1", "e2m3", "e4m3")
KINDS = ("row", "column", "dual")
#: Tiles that --sweep tries, the likeliest first: BLOCK_M, BLOCK_N, warps.
SWEEP: dict[str, tuple[Tile, ...]] = {
    "row": ((4, 1024, 4), (8, 512, 4), (16, 256, 4), (4, 512, 4)),
    "column": ((128, 64, 4), (64, 128, 4), (256, 64, 8), (128, 64, 8), (128, 128, 8)),
    "dual": ((128, 64, 4), (128, 128, 8), (64, 128, 4), (128, 64, 8), (64, 64, 4)),
}
#: FP32 lanes of a Hopper SM; one instruction a lane a cycle.
LANES = 128


def texts(kind: str, spec: QuantSpec) -> tuple[str, str]:
    """Row and column spec texts of one kind of packing."""
    return str(spec) if kind != "column" else "", str(spec) if kind != "row" else ""


# --- correctness ---------------------------------------------------------------------------------


def exhaustive(device: str) -> torch.Tensor:
    """Every bf16 pattern, once as a whole block and once among neighbours of its size."""
    patterns = torch.arange(65536, dtype=torch.int32, device=device).to(torch.int16)
    whole = patterns[:, None].expand(-1, 32)
    near = (patterns[:, None] & ~0x7F) | torch.arange(0, 128, 4, device=device).to(torch.int16)
    return torch.cat((whole, near)).view(torch.bfloat16).reshape(4096, 1024)


def adversarial(rows: int, cols: int, device: str) -> torch.Tensor:
    """Noise over 250 binades with zeros, -0, NaN, infinities, subnormals and 3.3e38 strewn in."""
    generator = torch.Generator(device).manual_seed(1)
    power = torch.randint(-126, 126, (rows, cols // 32, 1), generator=generator, device=device)
    noise = torch.randn(rows, cols // 32, 32, generator=generator, device=device)
    x = (noise * torch.exp2(power.float())).reshape(rows, cols)
    specials = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-40, 2.0**-126, 3.3e38)
    places = torch.rand(rows, cols, generator=generator, device=device)
    for index, value in enumerate(specials):
        x[(places > index * 1e-3) & (places < index * 1e-3 + 4e-4)] = value
    return x.bfloat16()


def check_cases() -> Iterator[tuple[str, QuantSpec, QuantSpec]]:
    """Name, row spec and column spec of every combination that is compared."""
    for name in FORMATS:
        for mode in ScaleMode:
            spec = QuantSpec(name, mode.value)
            yield f"{name} {mode.value}", spec, spec
        for points in (16, 32):
            turned = QuantSpec(name, hadamard=points)
            yield f"{name} rotated {points}", turned, turned
        random = QuantSpec(name, stochastic=True)
        yield f"{name} stochastic", random, random
        square = QuantSpec(name, block_2d=True)
        yield f"{name} square", square, square
    for layout in LAYOUTS.values():
        if layout.formats:
            spec = QuantSpec(layout.formats[0], layout=layout.name)
            yield f"{layout.formats[0]} {layout.name}", spec, spec


def inputs(device: str) -> dict[str, tuple[torch.Tensor, bool]]:
    """Label -> matrix and whether every case is compared on it, or one a format."""
    return {
        "every bf16 pattern [4096, 1024]": (exhaustive(device), True),
        "adversarial bf16 [4096, 3072]": (adversarial(4096, 3072, device), True),
        "random bf16 [4097, 3008]": (torch.randn(4097, 3008, device=device).bfloat16(), False),
        "random fp32, transposed [1024, 1056]": (torch.randn(1056, 1024, device=device).t(), False),
    }


def cases_for(everything: bool) -> list[tuple[str, QuantSpec, QuantSpec]]:
    """All cases, or the first of each format."""
    cases = list(check_cases())
    return cases if everything else [c for c in cases if c[0].endswith(" floor")]


#: Shape, strides, dtype, row and column spec texts, tile or None for the table's, capability.
Job = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, str, str, "Tile | None", int]


def compile_ahead(job: Job) -> None:
    """Compile one launch into Triton's cache, in a process of its own that touches no GPU."""
    from triton.backends.compiler import GPUTarget

    from mxflux.mx.compile_only import compiling_for
    from mxflux.mx.kernels.packers import mx_pack_kernel

    shape, stride, dtype, row, col, tiling, capability = job
    x = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    # The timed launches have no random state, and a kernel is compiled for what it is given.
    rng = None if tiling else torch.empty(2, dtype=torch.int64, device="meta")
    prepared = plan(x, rng, row, col, "cuda", tiling)
    with compiling_for(GPUTarget("cuda", capability, 32)):
        mx_pack_kernel.warmup(*prepared.arguments, grid=(1,), **prepared.keywords)


def compile_all(jobs: set[Job]) -> None:
    """Compile on all cores; the run itself then finds the kernels cached."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(mp_context=context) as pool:
        list(pool.map(compile_ahead, jobs))


def capability() -> int:
    """90 for a Hopper."""
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


def warm_cache(matrices: dict[str, tuple[torch.Tensor, bool]]) -> None:
    """Compile every kernel of the checks."""
    sm = capability()
    compile_all(
        {
            (tuple(x.shape), tuple(x.stride()), x.dtype, str(row), str(col), None, sm)
            for x, everything in matrices.values()
            for _, row, col in cases_for(everything)
        }
    )


def compare(label: str, x: torch.Tensor, row: QuantSpec, col: QuantSpec, rng: torch.Tensor) -> None:
    """Both packers on x: the same bytes, or SystemExit naming what differs."""
    packers = ("triton", "reference")
    blobs = [quantize_dual(x, row, col, rng=rng, packer=p, pad=True) for p in packers]
    for side, got, expected in zip(("row", "column"), *blobs, strict=True):
        for part in ("data", "scale"):
            if not torch.equal(getattr(got, part), getattr(expected, part)):
                raise SystemExit(f"{label}: {side} {part} differs from the reference")


def check_all(device: str) -> list[str]:
    """Compare every packer with the reference; a line for each input, or SystemExit."""
    matrices = inputs(device)
    warm_cache(matrices)
    rng = rng_state(20, (3 << 32) + 7, device)
    lines = []
    for label, (x, everything) in matrices.items():
        cases = cases_for(everything)
        for name, row, col in cases:
            compare(f"{label}: {name}", x, row, col, rng)
        lines.append(f"{label}: {len(cases)} combinations, row and column, 0 bytes differ")
    whole = matrices["every bf16 pattern [4096, 1024]"][0]
    return [*lines, check_devices(whole), check_large(device)]


def check_devices(x: torch.Tensor) -> str:
    """The reference itself gives the same bytes here and on the CPU."""
    for name in FORMATS:
        text = str(QuantSpec(name))
        here, there = (reference_pack(v, None, text, "") for v in (x, x.cpu()))
        if not all(torch.equal(a.cpu(), b) for a, b in zip(here, there, strict=True)):
            raise SystemExit(f"the reference of {name} differs between {x.device} and the CPU")
    return "the reference on this device and on the CPU: every bf16 pattern, 0 bytes differ"


def check_large(device: str) -> str:
    """A matrix of more than 2**31 elements: its first and last rows, in both blobs."""
    rows, cols = 720_000, 3072
    x = torch.empty(rows, cols, dtype=torch.bfloat16, device=device)
    for part in x.split(65536):
        part.normal_()
    text = str(QuantSpec("e2m1"))
    data, scale, data_t, scale_t = pack(x, None, text, text)
    for at in (slice(0, 64), slice(rows - 64, rows)):
        expected = reference_pack(x[at], None, text, text)
        byte, group = slice(at.start // 2, at.stop // 2), slice(at.start // 32, at.stop // 32)
        got = (data[at], scale[at], data_t[:, byte], scale_t[:, group])
        if not all(torch.equal(a, b) for a, b in zip(got, expected, strict=True)):
            raise SystemExit(f"{rows} x {cols}: rows {at} differ from the reference")
    return f"{rows} x {cols} = {rows * cols:,} elements: first and last 64 rows, 0 bytes differ"


def check_gemm(device: str) -> list[str]:
    """dot_scaled and emulated against the dequantized product in fp64: relative error."""
    lines = []
    for name in ("e2m1", "e4m3", "e5m2", "e2m3", "e3m2"):
        a, b = (
            quantize_rows(torch.randn(rows, 3072, device=device).bfloat16(), QuantSpec(name))
            for rows in (1000, 520)
        )
        exact = a.values().double() @ b.values().double().t()
        for backend in ("emulated", "triton"):
            if backend == "triton" and name in {"e2m3", "e3m2"}:
                continue
            got = gemm(a, b, backend=backend, out_dtype=torch.float32).double()
            error = float((got - exact).norm() / exact.norm())
            if error > 1e-3:
                raise SystemExit(f"gemm {backend} {name}: relative error {error:.2e} against fp64")
            lines.append(f"| {backend} | {name} | {error:.1e} | {gemm_time(a, b, backend):.0f} |")
    return lines


def gemm_time(a: MXBlob, b: MXBlob, backend: str) -> float:
    """Microseconds of one small GEMM: correctness, not speed, is the point here."""
    # Wall time: the emulated backend waits for the device itself, so events show nothing more.
    gemm(a, b, backend=backend)
    samples = []
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        gemm(a, b, backend=backend)
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - start) * 1e6)
    return statistics.median(samples)


# --- floors and times ----------------------------------------------------------------------------


def packer_bytes(kind: str, name: str) -> int:
    """Bytes that packing SHAPE must move: bf16 in, codes and scales out."""
    elements = SHAPE[0] * SHAPE[1]
    blob = FORMATS[name].bits / 8 + 1 / 32
    return int(elements * (2 + blob * (2 if kind == "dual" else 1)))


def instructions(kernel: Any, elements: int, warps: int) -> float | None:
    """SASS instructions a lane an element, from the compiled kernel; None without nvdisasm."""
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"
    if not os.access(tool, os.X_OK):
        return None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        done = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=True)
    names = re.findall(r"/\*[0-9a-f]{4}\*/\s+(?:@!?\w+\s+)?([A-Z][A-Z0-9_]*)", done.stdout)
    real = [n for n in names if n not in {"NOP", "BRA", "EXIT"}]
    return len(real) * warps * 32 / elements


@dataclass
class Row:
    """One packer: microseconds and its floors."""

    name: str
    kind: str
    time: float
    memory: float
    issue: float | None
    registers: int

    @property
    def floor(self) -> float:
        return max(self.memory, self.issue or 0.0)


def launch(
    x: torch.Tensor, kind: str, name: str, tiling: Tile | None = None
) -> tuple[Callable[[], Any], Any, Tile]:
    """A packer that fills kept buffers, its compiled kernel and its tile."""
    from mxflux.mx.kernels.packers import mx_pack_kernel

    prepared = plan(x, None, *texts(kind, QuantSpec(name)), tiling=tiling)

    def run() -> Any:
        return mx_pack_kernel[prepared.grid](*prepared.arguments, **prepared.keywords)

    words = prepared.keywords
    return run, run(), (words["BLOCK_M"], words["BLOCK_N"], words["num_warps"])


def issue_rate() -> float:
    """Lane instructions a second of this GPU at its top clock."""
    properties = torch.cuda.get_device_properties(0)
    kilohertz = getattr(properties, "clock_rate", 1_980_000)
    return properties.multi_processor_count * LANES * kilohertz * 1e3


def measure(x: torch.Tensor, kind: str, name: str, bandwidth: float) -> Row:
    """Time one packer and work out its floors."""
    run, kernel, (rows, cols, warps) = launch(x, kind, name)
    per_element = instructions(kernel, rows * cols, warps)
    issue = None if per_element is None else per_element * x.numel() / issue_rate() * 1e6
    memory = packer_bytes(kind, name) / bandwidth * 1e6
    return Row(name, kind, timing.device_time(run), memory, issue, kernel.n_regs)


# --- peers ---------------------------------------------------------------------------------------


def compiled_reference(kind: str, name: str) -> Callable[[torch.Tensor], Any]:
    """torch.compile of the reference packer, both blobs for `dual`."""
    fmt = FORMATS[name]

    def one(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        codes, scales = reference.quantize(x, fmt)
        return pack_codes(codes, fmt.bits), scales

    def both(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (*one(x), *one(x.t()))

    return torch.compile(one if kind == "row" else both, fullgraph=True)


def torchao_packer(name: str) -> Callable[[torch.Tensor], Any] | None:
    """torchao's to_mx along the last dimension (rows only), or None when it is not installed."""
    if importlib.util.find_spec("torchao") is None:
        return None
    from torchao.prototype.mx_formats.config import ScaleCalculationMode
    from torchao.prototype.mx_formats.mx_tensor import to_mx

    names = {"e2m1": torch.float4_e2m1fn_x2, "e2m3": "fp6_e2m3", "e4m3": torch.float8_e4m3fn}
    return lambda x: to_mx(x, names[name], 32, ScaleCalculationMode.FLOOR)


def peers(x: torch.Tensor, kind: str, name: str) -> Iterator[tuple[str, float | str]]:
    """Name and microseconds of every peer, or why it has none."""
    yield "torch.compile of the reference", attempt(compiled_reference(kind, name), x)
    if kind != "row":
        return
    packer = torchao_packer(name)
    if packer is None:
        yield "torchao to_mx", "not installed"
        return
    version = importlib.metadata.version("torchao")
    yield f"torchao {version} to_mx", attempt(packer, x)
    yield f"torchao {version} to_mx, torch.compile", attempt(torch.compile(packer), x)


def attempt(run: Callable[[torch.Tensor], Any], x: torch.Tensor) -> float | str:
    """Microseconds, or the error of a peer that does not run here."""
    try:
        return timing.device_time(lambda: run(x), repeats=10, warmup=2)
    except (RuntimeError, ImportError, AssertionError, TypeError) as error:
        return f"failed: {type(error).__name__}"


# --- report --------------------------------------------------------------------------------------


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


def sweep_order() -> Iterator[tuple[str, str, Tile]]:
    """Kind, format and tile: the likeliest tile of every packer, then the next, and so on."""
    for place in range(max(map(len, SWEEP.values()))):
        for kind in KINDS:
            for name in TIMED:
                if place < len(SWEEP[kind]):
                    yield kind, name, SWEEP[kind][place]


def sweep(x: torch.Tensor, budget: float) -> tuple[dict[tuple[str, str], dict[Tile, float]], int]:
    """(kind, format) -> tile -> microseconds, and how many were left when `budget` s were over."""
    deadline = time.monotonic() + budget
    found: dict[tuple[str, str], dict[Tile, float]] = {}
    order, sm = list(sweep_order()), capability()
    shape, stride = tuple(x.shape), tuple(x.stride())
    compile_all(
        {(shape, stride, x.dtype, *texts(k, QuantSpec(n)), tile, sm) for k, n, tile in order}
    )
    for done, (kind, name, tile) in enumerate(order):
        if time.monotonic() > deadline:
            return found, len(order) - done
        run, _, _ = launch(x, kind, name, tile)
        took = timing.device_time(run, repeats=10)
        found.setdefault((kind, name), {})[tile] = took
        print(f"{kind} {name} {tile}: {took:.0f} us", file=sys.stderr, flush=True)
    return found, 0


def sweep_table(x: torch.Tensor, bandwidth: float, budget: float) -> list[str]:
    """Every tile of SWEEP that the budget allows, and the best; the package's table is set by hand.

    The best tile of a kind is the one with the least sum over the formats.
    """
    found, left = sweep(x, budget)
    lines = ["| packs | format | best tile, warps | us | byte floor | all, us |"]
    lines += ["|---|---|---|---:|---:|---|"]
    for (kind, name), times in found.items():
        best = min(times, key=times.__getitem__)
        floor = packer_bytes(kind, name) / bandwidth * 1e6
        every = ", ".join(f"{tile} {took:.0f}" for tile, took in times.items())
        lines.append(f"| {kind} | {name} | {best} | {times[best]:.0f} | {floor:.0f} | {every} |")
    lines.append("")
    for kind in KINDS:
        per_format = [times for (k, _), times in found.items() if k == kind]
        sums = {
            tile: sum(times[tile] for times in per_format)
            for tile in SWEEP[kind]
            if per_format and all(tile in times for times in per_format)
        }
        if sums:
            best = min(sums, key=sums.__getitem__)
            lines.append(f"- {kind}: {best} is best in sum; the table has {TILES['cuda'][kind]}")
    return [*lines, f"- {left} tiles not tried: the budget of {budget:.0f} s was over"]


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
