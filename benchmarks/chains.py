# SPDX-License-Identifier: Apache-2.0
"""The fused MX chains against the kernels they replace, on one GPU, in one table.

    python benchmarks/chains.py --device cuda --out out/chains            # check, time, sweep tiles

Checked first: bytes against the unfused kernels and the packer, gradients against fp64, bits from
run to run. Times are medians of CUDA events with a cold L2; the floor is the least bytes over the
copy bandwidth of the same run. Unfused is what runs with the gates off: this project's own fused
norms and packers, torch's elementwise kernels. The predictions were written before the first run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "overlay"))

import torch

from mxflux.fusions import (
    chain_catalog,
    gate_residual,
    ln_modulate,
    mx_norm,
    mx_pack,
    norm_rope_qkv,
    timing,
)
from mxflux.fusions.catalog import HEAD_DIM, HEADS, HIDDEN, size
from mxflux.fusions.rope_table import RopeTable
from mxflux.mx.plans import LinearPlan
from mxflux.mx.triton_packers import pack

Tensor = torch.Tensor
BF16 = torch.bfloat16
DEVICE = "cuda"
SHAPES = ((512, 64), (512, 32), (4608, 1))
CHECKED = ((512, 8), (77, 3))
WIDE = 4
"""Inner width of the MLP over the hidden size."""

TARGETS = {"ln": 0.65, "ln shared": 0.65, "mlp": 0.8, "qkv": 0.65, "row only": 0.8}
PREDICTED = {
    "ln": (175, 239), "ln shared": (175, 375), "mlp forward": (520, 1294),
    "mlp backward": (600, 1307), "qkv": (520, 817), "row only": (520, 950),
}  # fmt: skip
"""Fused and unfused microseconds at 512x64 in MXFP6, before the first run."""

SWEPT = ((32, 64, 4), (32, 128, 4), (64, 64, 4), (64, 64, 8), (64, 128, 8), (128, 64, 8))
SWEPT_QKV = ((32, 0, 4), (32, 0, 8), (64, 0, 8), (128, 0, 8))


@dataclass(frozen=True)
class Chain:
    """One chain: what replaces what. bytes: the least that the fused one moves."""

    name: str
    target: str
    fused: Callable[[], Any]
    unfused: Callable[[], Any]
    bytes: int


@dataclass
class Result:
    """One line; microseconds."""

    chain: str
    target: str
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


@dataclass
class Inputs:
    """Tensors of one block-stream at [seq, batch]."""

    x: Tensor
    y: Tensor
    gate: Tensor
    scale: Tensor
    shift: Tensor
    inner: Tensor
    grad_inner: Tensor
    bias: Tensor
    mixed: Tensor
    weights: tuple[Tensor, Tensor]
    table: Tensor
    grads: tuple[Tensor, Tensor, Tensor]
    rng: Tensor


def inputs(seq: int, batch: int, hidden: int = HIDDEN, heads: int = HEADS) -> Inputs:
    """Normal values in bf16."""
    torch.manual_seed(seq + batch)
    dim = HEAD_DIM if hidden == HIDDEN else hidden // heads

    def normal(*sizes: int) -> Tensor:
        return torch.randn(sizes, device=DEVICE, dtype=BF16)

    angles = torch.rand(seq, 1, 1, dim // 2, device=DEVICE).repeat_interleave(2, -1) * 6.28
    parts = normal(batch, 6 * hidden).chunk(6, -1)
    return Inputs(
        normal(seq, batch, hidden), normal(seq, batch, hidden), *parts[:3],
        normal(seq * batch, WIDE * hidden), normal(seq * batch, WIDE * hidden),
        normal(WIDE * hidden), normal(seq, batch, heads, 3 * dim),
        (1 + 0.1 * normal(dim), 1 + 0.1 * normal(dim)), RopeTable.from_angles(angles).cos_sin,
        (normal(seq, batch, heads, dim), normal(seq, batch, heads, dim),
         normal(seq, batch, heads, dim)),
        torch.tensor([1, 2], device=DEVICE),
    )  # fmt: skip


def chains(given: Inputs, plan: LinearPlan) -> list[Chain]:
    """Every chain on these inputs."""
    found = [*_norm_chains(given, plan), *_mlp_chains(given, plan), _qkv_chain(given, plan)]
    return [*found, _evaluation(given, plan)]


def _norm_chains(given: Inputs, plan: LinearPlan) -> list[Chain]:
    x, scale, shift = given.x, given.scale, given.shift
    row, col = str(plan.x_row), str(plan.x_col)

    def fused() -> Any:
        return mx_pack.ln_pack(x, scale, shift, *mx_norm.statistics(x, scale, 1e-6), row, col)

    def plain(packs: int) -> Any:
        out = ln_modulate._forward(x, scale, shift, 1e-6)[0].flatten(0, 1)
        return [pack(out, None, row, col) for _ in range(packs)]

    def gated() -> Any:
        h, mean, rstd = mx_norm.gated(x, given.y, given.gate, 1e-6)
        return mx_pack.ln_pack(h, scale, shift, mean, rstd, row, col)

    def plain_gated() -> Any:
        _, out, *_ = gate_residual._forward(x, given.y, given.gate, scale, shift, 1e-6)
        return pack(out.flatten(0, 1), None, row, col)

    blobs = size(*fused())
    least = size(x) + blobs
    return [
        Chain("LN-modulate -> pack", "ln", fused, lambda: plain(1), least),
        Chain(
            "LN-modulate -> one pack for qkv and fc1", "ln shared", fused, lambda: plain(2), least
        ),
        Chain(
            "gated residual + LN-modulate -> pack", "ln", gated, plain_gated, 3 * size(x) + blobs
        ),
    ]


def _mlp_chains(given: Inputs, plan: LinearPlan) -> list[Chain]:
    h, g, bias = given.inner, given.grad_inner, given.bias
    row, col = str(plan.x_row), str(plan.x_col)
    d_row, d_col = str(plan.dy_row), str(plan.dy_col)

    def plain() -> Any:
        act = torch.nn.functional.gelu(h + bias, approximate="tanh")
        return pack(act, None, row, col)

    def plain_backward() -> Any:
        d = torch.ops.aten.gelu_backward(g, h, approximate="tanh")
        return pack(d, given.rng, d_row, d_col), d.sum(0)

    def backward() -> Any:
        return mx_pack.gelu_grad_pack(g, h, given.rng, d_row, d_col, BF16)

    def forward() -> Any:
        return mx_pack.gelu_pack(h, row, col)

    return [
        Chain("bias, GELU -> pack (fc2's input)", "mlp", forward, plain, size(h, *forward())),
        Chain(
            "GELU backward, bias gradient -> pack (fc1's gradient)",
            "mlp",
            backward,
            plain_backward,
            size(h, g, *backward()[0]),
        ),
    ]


def _qkv_chain(given: Inputs, plan: LinearPlan) -> Chain:
    row, col = str(plan.dy_row), str(plan.dy_col)
    mixed, weights, table = given.mixed, given.weights, given.table
    rstd = norm_rope_qkv._forward(mixed, *weights, table, 1e-6)[3]
    flat = mixed.shape[0] * mixed.shape[1]

    def fused() -> Any:
        return mx_pack.qkv_grad_pack(
            given.grads, mixed, weights, table, rstd, given.rng, row, col, BF16
        )

    def plain() -> Any:
        d, *_ = norm_rope_qkv._backward(*given.grads, mixed, *weights, table, rstd)
        return pack(d.view(flat, -1), given.rng, row, col)

    least = size(*given.grads, rstd, table, *fused()[0]) + size(mixed) * 2 // 3
    return Chain("backward of QK-norm + RoPE -> pack, bias gradient", "qkv", fused, plain, least)


def _evaluation(given: Inputs, plan: LinearPlan) -> Chain:
    """All packs of a single block's forward: rows only against both directions."""
    x, inner = given.x.flatten(0, 1), given.inner
    row, col, w_row, w_col = map(str, (plan.x_row, plan.x_col, plan.w_row, plan.w_col))
    width = x.shape[1]
    sizes = ((3 * width, width), (width, width), (WIDE * width, width), (width, WIDE * width))
    weights = [torch.randn(s, device=DEVICE, dtype=BF16) for s in sizes]

    def run(columns: bool) -> Any:
        made = [pack(t, None, row, col if columns else "") for t in (x, x, x, inner)]
        return [*made, *(pack(w, None, w_row, w_col if columns else "") for w in weights)]

    rows = run(False)
    least = 3 * size(x) + size(inner, *weights) + sum(size(*blobs) for blobs in rows)
    return Chain("evaluation: rows only", "row only", lambda: run(False), lambda: run(True), least)


def differing(a: Any, b: Any) -> tuple[int, int]:
    """Bytes that differ, and bytes compared."""
    pairs = list(zip(a, b, strict=True))
    return sum(int((x != y).sum()) for x, y in pairs), sum(x.numel() for x, _ in pairs)


def check(report: Report, seq: int, batch: int, name: str, plan: LinearPlan) -> None:
    """Bytes, gradients and repeatability of the chains at one shape."""
    given = inputs(seq, batch)
    label = f"{name} {seq}x{batch}"
    for chain in chains(given, plan)[:-1]:
        again = [_flat(chain.fused()) for _ in range(2)]
        if any(not torch.equal(a, b) for a, b in zip(*again, strict=True)):
            report.failures.append(f"{label} {chain.name}: two runs differ")
    check_norms(report, label, given, plan)
    mlp, _ = _mlp_chains(given, plan)
    qkv = _qkv_chain(given, plan)
    count, total = differing(qkv.fused()[0], qkv.unfused())
    report.checks[f"{label} d(mixed_qkv): bytes that differ"] = f"{count} of {total}"
    if count > total // 100:
        report.failures.append(f"{label} d(mixed_qkv): {count} of {total} bytes differ")
    _check_sums(report, label, given, plan)
    exact = torch.nn.functional.gelu(given.inner.double(), approximate="tanh").float()
    want = pack(exact, None, str(plan.x_row), str(plan.x_col))
    count, total = differing(mlp.fused(), want)
    report.checks[f"{label} GELU: bytes unlike fp64's"] = f"{count} of {total}"
    if count > total // 100:
        report.failures.append(f"{label} GELU: {count} of {total} bytes differ")


def check_norms(report: Report, label: str, given: Inputs, plan: LinearPlan) -> None:
    """The norms' blobs against the norms' kernels and the packer: no byte may differ."""
    norm, _, gated = _norm_chains(given, plan)
    for chain in (norm, gated):
        want = chain.unfused()
        count, total = differing(_flat(chain.fused()), _flat(want[0] if chain is norm else want))
        report.checks[f"{label} {chain.name}: bytes that differ"] = f"{count} of {total}"
        if count:
            report.failures.append(f"{label} {chain.name}: {count} of {total} bytes differ")


def _check_sums(report: Report, label: str, given: Inputs, plan: LinearPlan) -> None:
    """Both dgammas and the bias gradient, in fp32, against fp64."""
    mixed, weights, table = given.mixed, given.weights, given.table
    rstd = norm_rope_qkv._forward(mixed, *weights, table, 1e-6)[3]
    d, *gammas = norm_rope_qkv._backward(*given.grads, mixed, *weights, table, rstd)
    row, col = str(plan.dy_row), str(plan.dy_col)
    _, dq, dk, db = mx_pack.qkv_grad_pack(
        given.grads, mixed, weights, table, rstd, given.rng, row, col, torch.float32
    )
    exact = (*(t.double() for t in gammas), d.double().sum((0, 1)).flatten())
    for name, got, want in zip(
        ("dq weight", "dk weight", "d bias"), (dq, dk, db), exact, strict=True
    ):
        error = float((got.double() - want).norm() / want.norm())
        report.checks[f"{label} {name}: relative difference"] = f"{error:.1e}"
        if not error < 2**-7:
            report.failures.append(f"{label} {name}: relative difference {error:.1e}")


def _flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [t for part in value if part is not None for t in _flat(part)]


def time_chains(report: Report, seq: int, batch: int, name: str, plan: LinearPlan) -> None:
    """Every chain at one shape."""
    for chain in chains(inputs(seq, batch), plan):
        report.results.append(
            Result(
                chain.name, chain.target, name, seq, batch,
                timing.device_time(chain.fused), timing.device_time(chain.unfused),
                chain.bytes / report.copy_bandwidth * 1e6,
            )
        )  # fmt: skip


def sweep(report: Report, until: float) -> None:
    """Each dual kernel in other tiles, as long as time is left."""
    dual = [case for case in chain_catalog.CASES if case.dual and case.plan != "mxfp8"]
    for case in reversed(dual):  # the heaviest first
        found = report.sweep.setdefault(case.name, {})
        for tiles in SWEPT_QKV if case.kernel.startswith("qkv") else SWEPT:
            if time.monotonic() > until:
                return
            block = (tiles[0], tiles[1] or HEAD_DIM, tiles[2])
            call = chain_catalog.call(case, 512, 64, DEVICE, block)
            found["x".join(map(str, block))] = timing.device_time(call, repeats=10)
            del call


COLUMNS = (
    "chain", "plan", "S x B", "fused us", "unfused us", "fused / unfused", "target", "x floor",
    "predicted",
)  # fmt: skip


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
    ]
    lines += ["", *_whole_mlp(report)]
    for case, times in report.sweep.items():
        best = min(times, key=lambda t: times[t], default="")
        listed = ", ".join(f"{tiles} {time:.0f}" for tiles, time in times.items())
        lines += ["", f"Tiles of {case}, 512x64, us: {listed}; best {best}"]
    return "\n".join([*lines, "", f"{report.seconds:.0f} seconds in all."]) + "\n"


def _whole_mlp(report: Report) -> list[str]:
    """The target of the MLP is set on both directions together."""
    both: dict[tuple[str, int, int], list[float]] = {}
    for r in (r for r in report.results if r.target == "mlp"):
        sums = both.setdefault((r.plan, r.seq, r.batch), [0.0, 0.0])
        sums[0], sums[1] = sums[0] + r.fused, sums[1] + r.unfused
    return [
        f"- whole MLP, {plan} {seq}x{batch}: {a:.0f} / {b:.0f} us = {a / b:.2f} (target 0.8)"
        for (plan, seq, batch), (a, b) in both.items()
    ]


def _line(r: Result) -> str:
    ratio, target = r.fused / r.unfused, TARGETS[r.target]
    met = "met" if ratio <= target else "MISSED"
    key = r.target
    if key == "mlp":
        key += " backward" if "backward" in r.chain else " forward"
    predicted = ""
    if (r.seq, r.batch, r.plan) == (512, 64, "mxfp6") and "gated" not in r.chain:
        fused, unfused = PREDICTED[key]
        predicted = f"{fused} / {unfused} = {fused / unfused:.2f}"
    cells = (
        r.chain, r.plan, f"{r.seq}x{r.batch}", f"{r.fused:.0f}", f"{r.unfused:.0f}",
        f"{ratio:.2f}", f"<= {target} {met}", f"{r.fused / r.floor:.2f}", predicted,
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def run(budget: float, save: Callable[[Report], None]) -> Report:
    """Check, time, sweep; saved after each part."""
    import triton

    start = time.monotonic()
    name = torch.cuda.get_device_name()
    report = Report(name, torch.__version__, triton.__version__, timing.copy_bandwidth())
    plans = {key: plan for key, plan in chain_catalog.PLANS.items() if key != "mxfp8"}
    for plan_name, plan in plans.items():
        for seq, batch in CHECKED:
            check(report, seq, batch, plan_name, plan)
        save(report)
    for seq, batch in SHAPES:
        for plan_name, plan in plans.items():
            time_chains(report, seq, batch, plan_name, plan)
            torch.cuda.empty_cache()
        save(report)
    sweep(report, start + budget)
    report.seconds = time.monotonic() - start
    return report


def write(report: Report, out: Path) -> None:
    """chains.md for people, chains.json for programs."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "chains.md").write_text(markdown(report), encoding="utf-8")
    data = json.dumps(asdict(report), indent=1)
    (out / "chains.json").write_text(data + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """0: correct, whatever the times; 1: a check failed; 2: called wrongly."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=["cuda"], required=True)
    parser.add_argument("--out", type=Path, default=Path("out/chains"))
    parser.add_argument(
        "--budget", type=float, default=150, help="seconds after which no tile is tried"
    )
    arguments = parser.parse_args(argv)
    if not torch.cuda.is_available():
        parser.error(
            "no GPU; the chains' correctness is tested on the CPU by tests/overlay/fusions"
        )
    report = run(arguments.budget, lambda unfinished: write(unfinished, arguments.out))
    write(report, arguments.out)
    print(markdown(report))
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
