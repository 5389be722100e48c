# SPDX-License-Identifier: Apache-2.0
"""benchmarks/fusions.py from check to report on the CPU: tiny shapes, a still clock."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import fusions_support as support
import pytest
import torch

from mxflux.fusions import catalog, timing

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "fusions.py"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_fusions", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_fusions", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "DEVICE", "cpu")
    for name, value in (("HEADS", 2), ("HEAD_DIM", 32), ("HIDDEN", 64)):
        monkeypatch.setattr(catalog, name, value)
    sizes = {"rope_inputs": (2, 32), "ln_inputs": (64,)}
    for name, defaults in sizes.items():
        monkeypatch.setattr(getattr(module, name), "__defaults__", defaults)
    return module


def test_checks_pass_on_the_real_kernels(bench: ModuleType) -> None:
    for op in bench.OPS:
        assert bench.check(op, 7, 2) == []


def test_checks_find_a_wrong_kernel(bench: ModuleType) -> None:
    def off(*args: Any) -> tuple[torch.Tensor, ...]:
        return (bench.OPS[2].run(*args)[0] * 1.01,)

    broken = bench.Op(**{**vars(bench.OPS[2]), "run": off})
    problems = bench.check(broken, 7, 2)
    assert any("above the chain's" in p for p in problems)
    assert any("the registered op differs" in p for p in problems)


def test_report_from_start_to_end(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def once(run: Any, *_: Any, **__: Any) -> float:
        run()
        return 50.0

    monkeypatch.setattr(timing, "device_time", once)
    monkeypatch.setattr(timing, "enqueue_time", once)
    monkeypatch.setattr(timing, "copy_bandwidth", lambda: 4.3e12)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "none")
    monkeypatch.setattr(catalog, "SHAPES", ((6, 2), (9, 1)))
    monkeypatch.setattr(bench, "CHECKED_SHAPES", ((5, 2),))
    monkeypatch.setattr(bench, "TARGET_SHAPES", ((9, 1),))
    monkeypatch.setattr(bench, "COMPILED_SHAPE", (6, 2))
    compiled = lambda run, **_: run  # noqa: E731
    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(bench, "check_compiled", lambda *_: [])
    report = bench.run(
        bench.argparse.Namespace(budget=0), lambda unfinished: bench.write(unfinished, tmp_path)
    )
    early = json.loads((tmp_path / "fusions.json").read_text())
    assert len(early["results"]) == len(report.results)  # all that preceded the last part
    assert report.checks == []
    rows = [(r.op, r.seq, r.direction, r.implementation) for r in report.results]
    assert rows[:5] == [
        ("norm_rope_qkv", 6, "forward", "fused"),
        ("norm_rope_qkv", 6, "forward", "eager"),
        ("norm_rope_qkv", 6, "forward", "torch.compile"),
        ("norm_rope_qkv", 6, "backward", "fused"),
        ("norm_rope_qkv", 6, "backward", "eager"),
    ]
    assert len(rows) == len(bench.OPS) * 2 * (2 + 2 + 1)
    assert len(report.skipped) == len(bench.OPS)  # the spare shape: out of budget
    text = bench.markdown(report)
    assert "|norm_rope_qkv|6x2|forward|" in text
    assert any("enqueue 50.0 us" in miss for miss in report.misses)
    json.dumps(asdict(report))


def test_bytes_are_the_floor_of_the_facts(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "HEADS", 24)
    monkeypatch.setattr(catalog, "HEAD_DIM", 128)
    monkeypatch.setattr(catalog, "HIDDEN", 3072)
    megabytes = {
        op.name: [round(f(512, 64) / 1e6) for f in (op.forward_bytes, op.backward_bytes)]
        for op in bench.OPS
    }
    assert megabytes["norm_rope_qkv"] == [1215, 1617]
    assert megabytes["ln_modulate"] == [404, 605]
    assert support.BF16 == bench.BF16
