# SPDX-License-Identifier: Apache-2.0
"""The fused kernels against the byte floor, eager, torch.compile and Liger, in one table.

    python benchmarks/fusions.py --device cuda --out out/fusions           # check, time, report
    python benchmarks/fusions.py --device cuda --tune --out out/fusions    # tune, write the table

Every op is checked against the fp64 chain (outputs, gradients, run-to-run bits, the registered ops'
bits) before anything is timed. Times are medians of CUDA events, the L2 flushed before each call;
backward is what torch.autograd.grad takes. The floor is the least bytes over the copy bandwidth
measured in the same run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "overlay"))

import torch

from mxflux.fusions import catalog, reference, tables, timing
from mxflux.fusions.gate_residual import gate_residual_ln_modulate
from mxflux.fusions.ln_modulate import ln_modulate
from mxflux.fusions.norm_rope import norm_rope
from mxflux.fusions.norm_rope_qkv import norm_rope_qkv
from mxflux.fusions.rope_table import RopeTable

Tensor = torch.Tensor
BF16 = torch.bfloat16
DEVICE = "cuda"
COMPILED_SHAPE = (512, 32)
"""Where torch.compile is always timed: a target refers to it."""

SPARE_SHAPE = (4608, 1)
"""Where it is timed too, while the budget lasts."""

TARGET_SHAPES = ((512, 32), (512, 64), (4608, 1))
CHECKED_SHAPES = ((512, 32), (4608, 1), (77, 3))
TARGETS = {"forward": 1.15, "backward": 1.25, "small": 1.6, "compile": 2.0, "enqueue": 30.0}


@dataclass(frozen=True)
class Op:
    """One fused op with its unfused chain. run and chain take the differentiable inputs, then the
    table.
    """

    name: str
    run: Any
    chain: Any
    registered: Any
    inputs: Any
    forward_bytes: Any
    backward_bytes: Any


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


def rope_inputs(
    seq: int, batch: int, heads: int = catalog.HEADS, dim: int = catalog.HEAD_DIM
) -> tuple:
    """mixed, q_weight, k_weight and the cos-sin table."""
    mixed = torch.randn(seq, batch, heads, 3 * dim, device=DEVICE, dtype=BF16)
    weights = [1 + 0.1 * torch.randn(dim, device=DEVICE) for _ in range(2)]
    angles = torch.rand(seq, 1, 1, dim // 2, device=DEVICE).repeat_interleave(2, -1) * 6.28
    return [mixed, *(w.to(BF16) for w in weights)], RopeTable.from_angles(angles)


def q_inputs(
    seq: int, batch: int, heads: int = catalog.HEADS, dim: int = catalog.HEAD_DIM
) -> tuple:
    """q as a strided slice of a packed projection, its weight and the table.

    The slice is the leaf: autograd's own backward of the slicing (a zero fill and a copy of the
    whole projection) is not the op's time.
    """
    (mixed, weight, _), table = rope_inputs(seq, batch, heads, dim)
    return [mixed[..., :dim], weight], table


def ln_inputs(seq: int, batch: int, count: int, width: int = catalog.HIDDEN) -> tuple:
    """count hidden states, then gate, scale, shift (or scale, shift) as chunks of one
    projection.
    """
    hidden = [torch.randn(seq, batch, width, device=DEVICE, dtype=BF16) for _ in range(count)]
    parts = torch.randn(batch, 6 * width, device=DEVICE, dtype=BF16).chunk(6, dim=-1)
    return [*hidden, *parts[: count + 1]], None


def rope_bytes(seq: int, batch: int, tensors: int) -> int:
    """`tensors` [S, B, hidden] bf16 tensors, the rstd of q and k, the table."""
    return (
        tensors * 2 * seq * batch * catalog.HIDDEN
        + 8 * seq * batch * catalog.HEADS
        + 4 * seq * catalog.HEAD_DIM
    )


def ln_bytes(seq: int, batch: int, tensors: int, parameters: int) -> int:
    """`tensors` hidden states, mean and rstd, `parameters` [B, hidden] vectors, all bf16 but the
    statistics.
    """
    return 2 * catalog.HIDDEN * (tensors * seq * batch + parameters * batch) + 8 * seq * batch


OPS = (
    Op(
        "norm_rope_qkv",
        norm_rope_qkv,
        lambda m, qw, kw, table: tuple(
            t.contiguous() for t in reference.norm_rope_qkv(m, qw, kw, table.cos_sin.to(wide(m)))
        ),
        lambda m, qw, kw, table: torch.ops.mxflux.norm_rope_qkv(m, qw, kw, table.cos_sin, 1e-6)[:3],
        rope_inputs,
        lambda s, b: rope_bytes(s, b, 6),
        lambda s, b: rope_bytes(s, b, 8),
    ),
    Op(
        "norm_rope (q)",
        lambda q, qw, table: (norm_rope(q, qw, table),),
        lambda q, qw, table: (reference.norm_rope(q, qw, table.cos_sin.to(wide(q))),),
        lambda q, qw, table: torch.ops.mxflux.norm_rope(q, qw, table.cos_sin, 1e-6)[:1],
        q_inputs,
        lambda s, b: rope_bytes(s, b, 2),
        lambda s, b: rope_bytes(s, b, 3),
    ),
    Op(
        "ln_modulate",
        lambda x, sc, sh, _: (ln_modulate(x, sc, sh),),
        lambda x, sc, sh, _: (reference.ln_modulate(x, sc, sh),),
        lambda x, sc, sh, _: torch.ops.mxflux.ln_modulate(x, sc, sh, 1e-6)[:1],
        lambda s, b, *a: ln_inputs(s, b, 1, *a),
        lambda s, b: ln_bytes(s, b, 2, 2),
        lambda s, b: ln_bytes(s, b, 3, 3),
    ),
    Op(
        "gate_residual_ln_modulate",
        lambda x, y, g, sc, sh, _: gate_residual_ln_modulate(x, y, g, sc, sh),
        lambda x, y, g, sc, sh, _: reference.gate_residual_ln_modulate(x, y, g, sc, sh),
        lambda x, y, g, sc, sh, _: torch.ops.mxflux.gate_residual_ln_modulate(
            x, y, g, sc, sh, 1e-6
        )[:2],
        lambda s, b, *a: ln_inputs(s, b, 2, *a),
        lambda s, b: ln_bytes(s, b, 4, 3),
        lambda s, b: ln_bytes(s, b, 6, 5),
    ),
)


def wide(x: Tensor) -> torch.dtype:
    """fp64 for fp64, else fp32: the dtype in which a table is handed to a chain."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def results_of(
    run: Any, inputs: list[Tensor], table: Any, grads: list[Tensor] | None = None
) -> list[Tensor]:
    """Outputs, then gradients of the inputs."""
    leaves = [t.detach().requires_grad_() for t in inputs]
    outputs = run(*leaves, table)
    grads = grads or [torch.ones_like(o) for o in outputs]
    found = torch.autograd.grad(
        outputs, leaves, [g.to(o.dtype) for g, o in zip(grads, outputs, strict=True)]
    )
    return [*(o.detach() for o in outputs), *found]


def rms(x: Tensor, truth: Tensor) -> float:
    """Root mean square error in fp64."""
    return float((x.double() - truth).square().mean().sqrt())


def check(op: Op, seq: int, batch: int) -> list[str]:
    """What is wrong with the op at one shape: accuracy against the bf16 chain, bits from run to run
    and op to op.
    """
    torch.manual_seed(seq)
    inputs, table = op.inputs(seq, batch)
    outputs = op.run(*inputs, table)
    grads = [torch.randn_like(o) for o in outputs]
    fused = results_of(op.run, inputs, table, grads)
    again = results_of(op.run, inputs, table, grads)
    opaque = results_of(op.registered, inputs, table, grads)
    unfused = results_of(op.chain, inputs, table, grads)
    exact = results_of(op.chain, [t.double() for t in inputs], table, [g.double() for g in grads])
    problems = []
    for index, (ours, theirs, truth) in enumerate(zip(fused, unfused, exact, strict=True)):
        if not rms(ours, truth) <= rms(theirs, truth):
            ours_off, theirs_off = rms(ours, truth), rms(theirs, truth)
            problems.append(
                f"tensor {index}: error {ours_off:.3e} above the chain's {theirs_off:.3e}"
            )
        if not torch.equal(ours, again[index]):
            problems.append(f"tensor {index}: two runs differ")
        if not torch.equal(ours, opaque[index]):
            problems.append(f"tensor {index}: the registered op differs")
    return [f"{op.name} {seq}x{batch}: {problem}" for problem in problems]


def check_compiled(op: Op, seq: int, batch: int) -> list[str]:
    """Whether torch.compile of the fused op gives the bits of eager."""
    inputs, table = op.inputs(seq, batch)
    eager = results_of(op.run, inputs, table)
    try:
        compiled = results_of(torch.compile(op.run, fullgraph=True, dynamic=False), inputs, table)
    except RuntimeError as error:  # a compiler's failure is a finding; the times are still wanted
        return [f"{op.name} {seq}x{batch}: torch.compile of the op: {first_line(error)}"]
    return [
        f"{op.name} {seq}x{batch}: tensor {i}: compiled differs from eager"
        for i, (a, b) in enumerate(zip(eager, compiled, strict=True))
        if not torch.equal(a, b)
    ]


def first_line(error: Exception) -> str:
    """Type and first line of an error."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"


def liger(op: Op) -> Any:
    """Liger's RMSNorm before an eager RoPE, where it is installed; None elsewhere (no peer has the
    same maths).
    """
    if op.name != "norm_rope_qkv" or importlib.util.find_spec("liger_kernel") is None:
        return None
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    def run(
        mixed: Tensor, q_weight: Tensor, k_weight: Tensor, table: RopeTable
    ) -> tuple[Tensor, ...]:
        q, k, v = mixed.chunk(3, dim=-1)
        normed = [
            LigerRMSNormFunction.apply(t.contiguous(), w, 1e-6, 0.0, "llama", False)
            for t, w in ((q, q_weight), (k, k_weight))
        ]
        return (*(reference.rotate(t, table.cos_sin) for t in normed), v.contiguous())

    return run


def time_both(report: Report, op: Op, name: str, run: Any, seq: int, batch: int) -> None:
    """Forward with gradients on, then backward."""
    inputs, table = op.inputs(seq, batch)
    leaves = [t.detach().requires_grad_() for t in inputs]
    outputs = run(*leaves, table)
    grads = [torch.randn_like(o) for o in outputs]
    forward = timing.device_time(lambda: run(*leaves, table))
    backward = timing.device_time(
        lambda: torch.autograd.grad(outputs, leaves, grads, retain_graph=True)
    )
    for direction, measured, least in (
        ("forward", forward, op.forward_bytes(seq, batch)),
        ("backward", backward, op.backward_bytes(seq, batch)),
    ):
        floor = least / report.copy_bandwidth * 1e6
        report.results.append(
            Result(op.name, seq, batch, direction, name, measured, least, floor, floor / measured)
        )


def time_or_skip(report: Report, op: Op, name: str, run: Any, seq: int, batch: int) -> None:
    """A peer that cannot run here is listed as skipped; ours must run."""
    try:
        time_both(report, op, name, run, seq, batch)
    except RuntimeError as error:
        if name == "fused":
            raise
        report.skipped.append(f"{op.name} {seq}x{batch}: {name}: {first_line(error)}")


def implementations(op: Op) -> dict[str, Any]:
    """Name -> what runs at every shape."""
    found = {"fused": op.run, "eager": op.chain}
    peer = liger(op)
    if peer is not None:
        found["Liger RMSNorm + eager RoPE"] = peer
    return found


def time_compiled(report: Report, op: Op, seq: int, batch: int) -> None:
    """The chain under torch.compile, both directions."""
    torch._dynamo.reset()
    run = torch.compile(op.chain, mode="max-autotune-no-cudagraphs", dynamic=False)
    time_or_skip(report, op, "torch.compile", run, seq, batch)


def measure_enqueue(report: Report) -> None:
    """Host microseconds a call on small tensors: forward, backward, and the registered op."""
    for op in OPS:
        for name, call in enqueue_calls(op).items():
            report.enqueue[f"{op.name}: {name}"] = timing.enqueue_time(call)
    x = torch.randn(64, device=DEVICE, requires_grad=True)
    y, g = x * 2, torch.ones(64, device=DEVICE)
    report.enqueue["autograd.grad of one multiplication, for scale"] = timing.enqueue_time(
        lambda: torch.autograd.grad(y, x, g, retain_graph=True)
    )


def enqueue_calls(op: Op) -> dict[str, Any]:
    """What the host time of one op is made of."""
    inputs, table = op.inputs(16, 1)
    leaves = [t.detach().requires_grad_() for t in inputs]
    outputs = op.run(*leaves, table)
    grads = [torch.randn_like(o) for o in outputs]
    return {
        "forward, no grad": lambda: op.run(*inputs, table),
        "forward, grad": lambda: op.run(*leaves, table),
        "backward, autograd.grad": lambda: torch.autograd.grad(
            outputs, leaves, grads, retain_graph=True
        ),
        "forward through the registered op, grad": lambda: op.registered(*leaves, table),
    }


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


def retune(out: Path, ops: list[str]) -> None:
    """Write this GPU's table to out and use it for the rest of the run (and in the checkout).

    Named ops are tuned one after the other, each with the rows that the one before it won.
    """
    from mxflux.fusions import tune

    arch = tables.architecture(torch.device("cuda", 0))
    for op in ops or [""]:
        log = out / f"{arch}-tuning{op and '-' + op}.json"
        only = ["--op", op] if op else []
        if tune.main(["--out", str(out), "--log", str(log), *only]) == 0:
            shutil.copyfile(out / f"{arch}.json", tables.DIRECTORY / f"{arch}.json")
            tables.load.cache_clear()


def run(arguments: argparse.Namespace, save: Any = lambda _: None) -> Report:
    """Check and time. What the targets need comes first; the budget cuts only what follows it.

    save: called with the report whenever a long part begins, so that no time limit loses it all.
    """
    import triton

    clock = Clock()
    report = Report(
        torch.cuda.get_device_name(), torch.__version__, triton.__version__, timing.copy_bandwidth()
    )
    for op in OPS:
        for seq, batch in CHECKED_SHAPES:
            report.checks += check(op, seq, batch)
    clock.lap(report, "checks")
    measure_enqueue(report)
    clock.lap(report, "enqueue")
    for seq, batch in sorted(catalog.SHAPES, key=lambda shape: shape not in TARGET_SHAPES):
        for op in OPS:
            for name, call in implementations(op).items():
                time_or_skip(report, op, name, call, seq, batch)
            torch.cuda.empty_cache()
    clock.lap(report, "fused and eager")
    for op in OPS:
        save(report)
        time_compiled(report, op, *COMPILED_SHAPE)
        clock.lap(report, f"torch.compile of {op.name}")
    for op in OPS:
        save(report)
        report.checks += check_compiled(op, 256, 32)
    clock.lap(report, "checks of the compiled ops")
    for op in OPS:
        if clock.total() > arguments.budget:
            where = "x".join(map(str, SPARE_SHAPE))
            report.skipped.append(f"{op.name} {where}: torch.compile, out of time")
        else:
            save(report)
            time_compiled(report, op, *SPARE_SHAPE)
    clock.lap(report, "torch.compile at the spare shape")
    report.results.sort(key=place)
    judge(report)
    return report


class Clock:
    """Seconds since the start and since the last lap, told on stderr."""

    def __init__(self) -> None:
        self.start = self.last = time.monotonic()

    def total(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    def lap(self, report: Report, name: str) -> None:
        """Note what the part that ends now took."""
        now = time.monotonic()
        report.seconds[name] = round(now - self.last, 1)
        print(f"{name}: {now - self.last:.1f} s", file=sys.stderr, flush=True)
        self.last = now


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


def main(argv: list[str] | None = None) -> int:
    """0: correct, whatever the times; 1: a check failed; 2: called wrongly."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=["cuda"], required=True)
    parser.add_argument("--out", type=Path, default=Path("out/fusions"))
    parser.add_argument(
        "--tune",
        nargs="*",
        metavar="OP",
        choices=tables.OPS,
        help="first tune these ops (none named: all) and write the table",
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=150,
        help="seconds after which torch.compile is timed at 512x32 only",
    )
    arguments = parser.parse_args(argv)
    if not torch.cuda.is_available():
        parser.error(
            "no GPU; the kernels' correctness is tested on the CPU by tests/overlay/fusions"
        )
    torch._functorch.config.donated_buffer = False  # retain_graph on compiled graphs
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.tune is not None:
        retune(arguments.out, arguments.tune)
    report = run(arguments, lambda unfinished: write(unfinished, arguments.out))
    write(report, arguments.out)
    print(markdown(report))
    return 1 if report.checks else 0


if __name__ == "__main__":
    sys.exit(main())
