# SPDX-License-Identifier: Apache-2.0
"""`python -m mxflux.benchmarks.step` on the CPU: a tiny model, in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def run(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-m", "mxflux.benchmarks.step", "--preset", "flux_tiny"]
    command += ["--micro-batch", "2", "--tokens", "16+8", "--device", "cpu", "--repeats", "1"]
    done = subprocess.run(
        [*command, *arguments, "--out", str(tmp_path)],
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert (tmp_path / "step.json").exists(), done.stderr
    return done.returncode, json.loads((tmp_path / "step.json").read_text(encoding="utf-8"))


def test_a_step_and_its_peer_have_the_same_parameters(tmp_path: Path) -> None:
    pytest.importorskip("diffusers", reason="the peer is not installed")
    status, found = run(tmp_path, "--compare", "eager,diffusers", "--limit", "150")
    rows = {row["variant"]: row for row in found["rows"]}
    ours, peer = rows["eager"], rows["diffusers"]
    assert ours["parameters"] == peer["parameters"]
    assert ours["milliseconds"] > 0
    assert ours["timeline"]["families"]["GEMM"][0] > 20
    # gates that are on cannot engage on a CPU: their row says so and the status is 1
    assert status == 1
    assert "cannot engage" in rows["fused"]["error"]


def test_a_training_step_updates_and_counts(tmp_path: Path) -> None:
    status, found = run(tmp_path, "--compare", "eager", "--mode", "train", "--recompute")
    assert status == 1
    (row,) = (row for row in found["rows"] if row["variant"] == "eager")
    assert row["error"] == ""
    assert row["timeline"]["kernels"] > 100
