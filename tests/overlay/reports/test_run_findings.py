# SPDX-License-Identifier: Apache-2.0
"""What the report of a run finds wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report_support import LINEARS, census, effective, gate, make_run, texts, write

from mxflux.mx.high import LABELS
from mxflux.reports.precision_table import direction_rows, requested_formats
from mxflux.reports.run_report import run_page


@pytest.mark.parametrize(
    "wrong", [census("bf16"), census("e2m1/e4m3"), census("e2m1", LINEARS[:1]), {"expected": []}]
)
def test_another_precision_than_asked_for_is_marked(tmp_path: Path, wrong: dict) -> None:
    run = make_run(tmp_path, fp4="e2m1")
    write(run, "census.json", wrong)
    page = run_page(run)
    assert page.tone == "bad"
    assert "precision" in page.state
    assert "differs" in texts(page, "Precision")


def counted(forward: str, backward: str, by: str) -> dict[str, Any]:
    """census.json of linears whose backward GEMMs are not like the forward's."""
    found = census(backward)
    for linear in LINEARS:
        for way, what in found[linear].items():
            what.update({"format": forward} if way == "fprop" else {"backend": by})
    return found


@pytest.mark.parametrize(
    ("asked", "forward", "backward", "by"),
    [
        ({"fp4": "e2m1", "mx_backward_precision": "fp8"}, "e2m1", LABELS["fp8"], "torch"),
        ({"fp4": "e2m1", "mx_backward_precision": "bf16"}, "e2m1", LABELS["bf16"], "torch"),
        ({"fp6": "e3m2"}, "e3m2", "e3m2", "emulated"),
        ({"fp8": "e4m3", "gemm_backend": "emulated"}, "e4m3", "e4m3", "emulated"),
        ({"fp4": "e2m1", "mx_backward_precision": "mxfp8_e5m2"}, "e2m1", "e5m2", "emulated"),
    ],
)
def test_a_run_that_did_as_asked_is_not_marked(
    asked: dict[str, str], forward: str, backward: str, by: str
) -> None:
    rows = direction_rows(counted(forward, backward, by), asked)
    assert [row.direction for row in rows] == ["fprop", "dgrad", "wgrad"]
    assert all(row.matches for row in rows), rows
    rows = direction_rows(counted(forward, "fp8-e4m3", by), asked)
    assert [row.matches for row in rows] == [True, False, False]


def test_fp8_of_transformer_engine_alone_is_no_mx_format() -> None:
    assert requested_formats({"fp8": "e4m3", "gemm_backend": None}) == {}


def test_an_mx_format_that_nobody_asked_for_is_marked(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    write(run, "census.json", {**census("e2m1"), "expected": []})
    assert "differs" in texts(run_page(run), "Precision")


@pytest.mark.parametrize(("mode", "tone"), [("on", "bad"), ("auto", "good")])
def test_a_fusion_that_was_asked_for_and_declined_is_marked(
    tmp_path: Path, mode: str, tone: str
) -> None:
    run = make_run(tmp_path)
    write(run, "fusions.json", [gate("fused_ln_modulate", mode, 0, width=3)])
    page = run_page(run)
    assert page.tone == tone
    assert "width: 3" in texts(page, "Fusions")


@pytest.mark.parametrize(("status", "tone"), [("overridden", "bad"), ("expected", "good")])
def test_a_key_that_did_not_arrive_is_marked(tmp_path: Path, status: str, tone: str) -> None:
    run = make_run(tmp_path)
    write(run, "effective.json", [effective("model.apply_rope_fusion", True, status)])
    page = run_page(run)
    assert page.tone == tone
    said = "1 keys; 1 did not" if status == "overridden" else "1 keys; 0 did not"
    assert said in texts(page, "Requested and effective")


@pytest.mark.parametrize(
    ("status", "tone"), [("failed", "bad"), ("stopped", "warn"), ("running", "warn")]
)
def test_how_a_run_ended_is_its_state(tmp_path: Path, status: str, tone: str) -> None:
    page = run_page(make_run(tmp_path, status=status))
    assert (page.state.split(";")[0], page.tone) == (status, tone)


def test_a_loss_that_is_no_number_is_said(tmp_path: Path) -> None:
    run = make_run(tmp_path, loss=lambda step: float("nan") if step > 100 else 1.0)
    assert "20 values are not finite" in texts(run_page(run), "Curves")
