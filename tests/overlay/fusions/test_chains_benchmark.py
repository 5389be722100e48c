# SPDX-License-Identifier: Apache-2.0
"""benchmarks/chains.py from check to report on the CPU: tiny shapes, a still clock."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import fusions_support as support
import pytest
import torch

from mxflux.fusions import timing
from mxflux.mx.packers import reference_pack
from mxflux.mx.plans import mxfp6

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "chains.py"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    assert support.OVERLAY.is_dir()
    spec = importlib.util.spec_from_file_location("bench_chains", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_chains", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "DEVICE", "cpu")
    monkeypatch.setattr(module.inputs, "__defaults__", (64, 2))
    monkeypatch.setattr(module, "pack", reference_pack)  # the same bytes, faster than interpreted
    return module


def empty(bench: ModuleType) -> Any:
    return bench.Report("cpu", torch.__version__, "0", 1e12)


def test_checks_pass_on_the_real_kernels(bench: ModuleType) -> None:
    report = empty(bench)
    bench.check(report, 3, 4, "mxfp6", mxfp6())
    assert report.failures == []
    assert report.checks["mxfp6 3x4 LN-modulate -> pack: bytes that differ"].startswith("0 of")


def test_checks_find_a_wrong_kernel(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    right = bench.mx_pack.ln_pack

    def wrong(*args: Any) -> Any:
        data, *rest = right(*args)
        return data ^ 1, *rest

    monkeypatch.setattr(bench.mx_pack, "ln_pack", wrong)
    report = empty(bench)
    bench.check_norms(report, "mxfp6", bench.inputs(3, 4), mxfp6())
    assert any("LN-modulate -> pack" in failure for failure in report.failures)


def test_the_report_names_what_missed(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    times = iter([100.0, 200.0] * 3 + [90.0, 100.0] * 4)
    monkeypatch.setattr(timing, "device_time", lambda *_, **__: next(times))
    report = empty(bench)
    bench.time_chains(report, 3, 4, "mxfp6", mxfp6())
    bench.write(report, tmp_path)
    text = (tmp_path / "chains.md").read_text(encoding="utf-8")
    assert "| 100 | 200 | 0.50 | <= 0.65 met |" in text
    assert "| 90 | 100 | 0.90 | <= 0.8 MISSED |" in text
    assert len(json.loads((tmp_path / "chains.json").read_text())["results"]) == 7
