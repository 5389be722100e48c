# SPDX-License-Identifier: Apache-2.0
"""Checked before a time counts: bytes, gradients against fp64, the same bits from run to run."""

from __future__ import annotations

from typing import Any

import torch

from chain_bench import cases
from chain_bench.inputs import Inputs, inputs
from chain_bench.report import Report
from mxflux.fusions import mx_pack, norm_rope_qkv
from mxflux.mx.plans import LinearPlan

Tensor = torch.Tensor
SUMS = ("dq weight", "dk weight", "d bias")


def check(report: Report, seq: int, batch: int, name: str, plan: LinearPlan) -> None:
    """Everything at one shape."""
    given = inputs(seq, batch)
    label = f"{name} {seq}x{batch}"
    for chain in cases.chains(given, plan)[:-1]:
        again = [_flat(chain.fused()) for _ in range(2)]
        if any(not torch.equal(a, b) for a, b in zip(*again, strict=True)):
            report.failures.append(f"{label} {chain.name}: two runs differ")
    check_norms(report, label, given, plan)
    _check_qkv(report, label, given, plan)
    _check_sums(report, label, given, plan)
    _check_gelu(report, label, given, plan)


def check_norms(report: Report, label: str, given: Inputs, plan: LinearPlan) -> None:
    """The norms' blobs against the norms' kernels and the packer: no byte may differ."""
    norm, _, gated = cases.norm_chains(given, plan)
    for chain in (norm, gated):
        want = chain.unfused()
        count, total = differing(_flat(chain.fused()), _flat(want[0] if chain is norm else want))
        report.checks[f"{label} {chain.name}: bytes that differ"] = f"{count} of {total}"
        if count:
            report.failures.append(f"{label} {chain.name}: {count} of {total} bytes differ")


def differing(a: Any, b: Any) -> tuple[int, int]:
    """Bytes that differ, and bytes compared."""
    pairs = list(zip(a, b, strict=True))
    return sum(int((x != y).sum()) for x, y in pairs), sum(x.numel() for x, _ in pairs)


def _check_qkv(report: Report, label: str, given: Inputs, plan: LinearPlan) -> None:
    qkv = cases.qkv_chain(given, plan)
    _few(report, f"{label} d(mixed_qkv)", "that differ", qkv.fused()[0], qkv.unfused())


def _check_gelu(report: Report, label: str, given: Inputs, plan: LinearPlan) -> None:
    exact = torch.nn.functional.gelu(given.inner.double(), approximate="tanh").float()
    want = cases.pack(exact, None, str(plan.x_row), str(plan.x_col))
    forward, _ = cases.mlp_chains(given, plan)
    _few(report, f"{label} GELU", "unlike fp64's", forward.fused(), want)


def _few(report: Report, what: str, how: str, got: Any, want: Any) -> None:
    """At most one byte of a hundred may differ: roundings of a last bit."""
    count, total = differing(got, want)
    report.checks[f"{what}: bytes {how}"] = f"{count} of {total}"
    if count > total // 100:
        report.failures.append(f"{what}: {count} of {total} bytes {how}")


def _check_sums(report: Report, label: str, given: Inputs, plan: LinearPlan) -> None:
    """Both dgammas and the bias gradient, in fp32, against fp64."""
    mixed, weights, table = given.mixed, given.weights, given.table
    rstd = norm_rope_qkv._forward(mixed, *weights, table, 1e-6)[3]
    d, *gammas = norm_rope_qkv._backward(*given.grads, mixed, *weights, table, rstd)
    row, col = str(plan.dy_row), str(plan.dy_col)
    _, *sums = mx_pack.qkv_grad_pack(
        given.grads, mixed, weights, table, rstd, given.rng, row, col, torch.float32
    )
    exact = (*(t.double() for t in gammas), d.double().sum((0, 1)).flatten())
    for name, got, want in zip(SUMS, sums, exact, strict=True):
        error = float((got.double() - want).norm() / want.norm())
        report.checks[f"{label} {name}: relative difference"] = f"{error:.1e}"
        if not error < 2**-7:
            report.failures.append(f"{label} {name}: relative difference {error:.1e}")


def _flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [t for part in value if part is not None for t in _flat(part)]
