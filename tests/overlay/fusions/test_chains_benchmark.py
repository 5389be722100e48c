# SPDX-License-Identifier: Apache-2.0
"""benchmarks/chains.py from check to report on the CPU: tiny shapes, a still clock."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import fusions_support as support
import pytest
import torch

from mxflux.fusions import chain_catalog, mx_pack, timing
from mxflux.mx.packers import reference_pack
from mxflux.mx.plans import mxfp6

sys.path.insert(0, str(support.OVERLAY.parent / "benchmarks"))

import chains as script
from chain_bench import cases, checks, measure, predictions
from chain_bench import inputs as given
from chain_bench.report import Report, write


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given, "DEVICE", "cpu")
    monkeypatch.setattr(given.inputs, "__defaults__", (64, 2))
    monkeypatch.setattr(cases, "pack", reference_pack)  # the same bytes, faster than interpreted


def empty() -> Report:
    return Report("cpu", torch.__version__, "0", 1e12)


def test_checks_pass_on_the_real_kernels() -> None:
    report = empty()
    checks.check(report, 3, 4, "mxfp6", mxfp6())
    assert report.failures == []
    assert report.checks["mxfp6 3x4 LN-modulate -> pack: bytes that differ"].startswith("0 of")


def test_checks_find_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    right = mx_pack.ln_pack

    def wrong(*args: Any) -> Any:
        data, *rest = right(*args)
        return data ^ 1, *rest

    monkeypatch.setattr(mx_pack, "ln_pack", wrong)
    report = empty()
    checks.check_norms(report, "mxfp6", given.inputs(3, 4), mxfp6())
    assert any("LN-modulate -> pack" in failure for failure in report.failures)


def test_the_report_names_what_missed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    times = iter([100.0, 200.0] * 3 + [90.0, 100.0] * 4)
    monkeypatch.setattr(timing, "device_time", lambda *_, **__: next(times))
    report = empty()
    measure.time_chains(report, 3, 4, "mxfp6", mxfp6())
    write(report, tmp_path)
    text = (tmp_path / "chains.md").read_text(encoding="utf-8")
    assert "| 100 | 200 | 0.50 | <= 0.65 met |" in text
    assert "| 90 | 100 | 0.90 | <= 0.8 MISSED |" in text
    assert len(json.loads((tmp_path / "chains.json").read_text())["results"]) == 7


def test_every_timed_plan_has_predictions_of_known_chains() -> None:
    assert sum(name.endswith("-unrotated") for name in script.PLANS) == 2
    for name in script.PLANS:
        assert set(predictions.PREDICTED[name]) == set(predictions.TARGETS)
    assert predictions.predicted("mxfp6", "ln", (512, 64)) == "263 / 283 = 0.93"
    assert predictions.predicted("mxfp6", "ln", (512, 32)) == ""


def test_a_sweep_takes_only_the_plans_asked_for() -> None:
    swept = measure.swept(["mxfp4-unrotated"])
    assert {case.plan for case, _ in swept} == {"mxfp4-unrotated"}
    assert {case.kernel for case, _ in swept} == set(chain_catalog.KERNELS)


@pytest.mark.parametrize("wrong", [["--shapes", "512"], ["--plans", "mxfp5"], []])
def test_a_wrong_call_says_so(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        script.main([*wrong] if not wrong else ["--device", "cuda", *wrong])
    assert stopped.value.code == 2
    message = capsys.readouterr().err
    assert any(word in message for word in ("SEQxBATCH", "mxfp5", "--device"))
