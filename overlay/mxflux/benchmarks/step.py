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

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mxflux.benchmarks import peers
from mxflux.benchmarks.report import markdown
from mxflux.benchmarks.timeline import Timeline, record
from mxflux.benchmarks.variants import GROUPS, PRECISIONS, VARIANTS, Variant
from mxflux.benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable

MATRIX = 8192
"""Side of the matrix product that measures the peak."""


@dataclass
class Measured:
    """One variant at one batch; times in milliseconds, memory in GiB. error: why it has no time."""

    variant: str
    batch: int
    milliseconds: float = 0.0
    forward: float = 0.0
    samples: list[float] = field(default_factory=list)
    peak_memory: float = 0.0
    parameters: int = 0
    timeline: Timeline | None = None
    engaged: dict[str, int] = field(default_factory=dict)
    error: str = ""


@dataclass
class Result:
    """Everything that a run found out."""

    command: str
    device: str
    versions: dict[str, str]
    preset: str
    blocks: str
    mode: str
    precision: str
    tokens: tuple[int, int]
    peak_tflops: float
    copy_bandwidth: float
    work: dict[str, Any]
    rows: list[Measured] = field(default_factory=list)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(prog="mxtree bench step", description=__doc__.splitlines()[0])
    found.add_argument("--preset", default="flux_12b", help="flux_12b, flux_535m or flux_tiny")
    found.add_argument("--blocks", default="joint,single", help="kinds, or all of the preset")
    found.add_argument("--micro-batch", default="32", help="samples a step; several with commas")
    found.add_argument("--tokens", default="256+256", help="image+text tokens of a sample")
    found.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    found.add_argument("--compare", default="eager", help=f"of {','.join(GROUPS)}, or variants")
    found.add_argument(
        "--mode", choices=("step", "train"), default="step", help="train: with AdamW"
    )
    found.add_argument("--precision", choices=tuple(PRECISIONS), default="bf16")
    found.add_argument("--gemm-backend", default="emulated", help="of MX GEMMs")
    found.add_argument("--recompute", action="store_true", help="recompute every block")
    found.add_argument("--repeats", type=int, default=8)
    found.add_argument("--limit", type=float, default=240, help="seconds a variant may take")
    found.add_argument("--out", type=Path, help="folder for step.md and step.json")
    found.add_argument("--worker", help=argparse.SUPPRESS)
    found.add_argument("--fill-cache", action="store_true", help=argparse.SUPPRESS)
    return found


def variants_of(text: str) -> list[Variant]:
    """Variants behind the names of --compare; ValueError names an unknown one."""
    names: list[str] = []
    for name in text.split(","):
        if name not in GROUPS and name not in VARIANTS:
            known = ", ".join(dict.fromkeys((*GROUPS, *VARIANTS)))
            raise ValueError(f"--compare {name!r} is unknown. Choose from: {known}.")
        names += GROUPS.get(name, (name,))
    return [VARIANTS[name] for name in dict.fromkeys(names)]


def workload(options: argparse.Namespace, batch: int) -> Workload:
    """The sizes that the command line asks for."""
    image, _, text = options.tokens.partition("+")
    if not (image.isdecimal() and text.isdecimal()):
        raise ValueError(f"--tokens {options.tokens!r}: expected image+text, as 256+256")
    blocks = options.blocks.split(",")
    return Workload.of(options.preset, blocks, batch, (int(image), int(text)), options.device)


def batches(options: argparse.Namespace) -> list[int]:
    """The micro-batches that the command line asks for."""
    parts = options.micro_batch.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise ValueError(f"--micro-batch {options.micro_batch!r}: expected numbers, as 32,64")
    return [int(part) for part in parts]


def prepare_megatron(device: str) -> Any:
    """A context in which Megatron-core imports and has its groups, in one process."""
    import contextlib

    from mxflux.training.process import started_process

    stack = contextlib.ExitStack()
    name = "cpu" if device == "cpu" else ("mi355x" if torch.version.hip else "h200")
    sys.modules.setdefault("transformer_engine", None)  # type: ignore[arg-type]  the local spec
    stack.enter_context(
        started_process(name, transformer_impl="local", backend="gloo", timeout_minutes=5)
    )
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    parallel_state.initialize_model_parallel()
    model_parallel_cuda_manual_seed(1)
    return stack


def measure(options: argparse.Namespace, variant: Variant, batch: int) -> Measured:
    """Build a variant, warm it up, time it, profile one step."""
    from mxflux.benchmarks import variants

    work = workload(options, batch)
    torch.manual_seed(0)
    if work.device.type == "cuda":
        # its backward faulted here with two versions of cuDNN on one machine (torch 2.11)
        torch.backends.cuda.enable_cudnn_sdp(False)
    model = variants.build(
        variant, work, precision=options.precision, backend=options.gemm_backend,
        recompute=options.recompute,
    )  # fmt: skip
    if variant.peer and options.recompute:
        peers.peer(variant.peer).recompute(model)
    if variant.peer and variant.compiled:
        peers.peer(variant.peer).compile_blocks(model)
    run = variants.forward(variant, model, work)
    once = variants.step(model, run, train=options.mode == "train")
    for _ in range(3):
        once()
    if options.fill_cache:
        return Measured(variant.name, batch)
    gates = getattr(model, "fusion_gates", None)
    if gates is not None and not variant.compiled:
        gates.require_engaged()
    times = _times(once, options.repeats, work.device)
    forwards = _times(_without_grad(run), 3, work.device)
    memory = torch.cuda.max_memory_allocated() / 2**30 if work.device.type == "cuda" else 0.0
    return Measured(
        variant.name, batch, statistics.median(times), statistics.median(forwards), times, memory,
        sum(p.numel() for p in model.parameters()), record(once, work.device),
        _engaged(gates) if variant.fused else {},
    )  # fmt: skip


def _engaged(gates: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for report in gates.report():
        counts[report.key] = counts.get(report.key, 0) + report.engaged
    return counts


def _without_grad(run: Callable[[], torch.Tensor]) -> Callable[[], None]:
    def once() -> None:
        with torch.no_grad():
            run()

    return once


def _times(call: Callable[[], None], repeats: int, device: torch.device) -> list[float]:
    """Milliseconds of each call, one after the other as in training: nothing waits in between."""
    if device.type != "cuda":
        return [_wall(call) for _ in range(repeats)]
    call()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]


def _wall(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def peaks(device: str) -> tuple[float, float]:
    """Measured TFLOP/s of a bf16 matrix product, and bytes a second of a copy; 0 on the CPU."""
    if device == "cpu":
        return 0.0, 0.0
    from mxflux.fusions import timing

    a, b = (torch.randn(MATRIX, MATRIX, device=device, dtype=torch.bfloat16) for _ in range(2))
    found = 2 * MATRIX**3 / timing.device_time(lambda: a @ b) / 1e6, timing.copy_bandwidth()
    timing._flush_buffer.cache_clear()
    return found


def in_worker(options: argparse.Namespace) -> Measured:
    """One variant at one batch, in this process."""
    variant, (batch,) = VARIANTS[options.worker], batches(options)
    if variant.peer:
        return measure(options, variant, batch)
    with prepare_megatron(options.device):
        return measure(options, variant, batch)


def run_worker(options: argparse.Namespace, variant: Variant, batch: int) -> Measured:
    """One variant at one batch, in a process of its own."""
    arguments = _worker_arguments(options, variant, batch)
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ)
        if variant.peer and variant.compiled and options.device == "cuda":
            # torch 2.11 faults while it tunes these kernels unless every launch is waited for
            waiting = {**environment, "CUDA_LAUNCH_BLOCKING": "1"}
            _spawn([*arguments, "--fill-cache"], Path(folder, "fill.json"), waiting, options.limit)
        why = _spawn(arguments, Path(folder, "row.json"), environment, options.limit)
        path = Path(folder, "row.json")
        if why or not path.exists():
            return Measured(variant.name, batch, error=why or "no result")
        found = json.loads(path.read_text(encoding="utf-8"))
    return restore(found)


def restore(found: dict[str, Any]) -> Measured:
    """A row as a worker wrote it."""
    lines = found.pop("timeline")
    timeline = None if lines is None else Timeline(**lines)
    return Measured(**found, timeline=timeline)


def _worker_arguments(options: argparse.Namespace, variant: Variant, batch: int) -> list[str]:
    kept = ("preset", "blocks", "tokens", "device", "mode", "precision", "gemm_backend", "repeats")
    flags = [
        part
        for name in kept
        for part in (f"--{name.replace('_', '-')}", str(getattr(options, name)))
    ]
    flags += ["--micro-batch", str(batch), "--worker", variant.name]
    return [*flags, "--recompute"] if options.recompute else flags


def _spawn(arguments: list[str], out: Path, environment: dict[str, str], limit: float) -> str:
    """Run a worker; why it failed, or "". Its last lines go to stderr."""
    command = [sys.executable, "-m", "mxflux.benchmarks.step", *arguments, "--out", str(out)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return f"took longer than {limit:.0f} s"
    if done.returncode == 0:
        return ""
    tail = [line for line in done.stderr.splitlines() if line.strip()][-12:]
    print("\n".join(tail), file=sys.stderr)
    return (tail or [f"exit status {done.returncode}"])[-1][:200]


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
        row = in_worker(options)
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
