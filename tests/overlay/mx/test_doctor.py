# SPDX-License-Identifier: Apache-2.0
"""doctor: every backend and packer has a line, and what is missing has a reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mxflux.mx import doctor
from mxflux.mx.backends import BACKENDS

OVERLAY = Path(doctor.__file__).resolve().parents[2]


def test_runs_as_a_module() -> None:
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "mxflux.mx.doctor"]
    done = subprocess.run(
        command, env=env | {"PYTHONPATH": str(OVERLAY)}, capture_output=True, text=True, check=True
    )
    assert f"torch {torch.__version__}" in done.stdout
    assert "  emulated   runs: e2m1, e2m3, e3m2, e4m3, e5m2" in done.stdout
    for name in BACKENDS:
        assert f"\n  {name} " in done.stdout
    assert "  aiter      not here: " in done.stdout


def test_every_missing_backend_says_why_and_what_it_would_take() -> None:
    lines = doctor.backend_lines(torch.device("cpu"))
    assert len(lines) == len(BACKENDS)
    for line in lines:
        assert " runs: " in line or (" not here: " in line and "would take e" in line)


def test_packers_follow_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert doctor.packer_lines(torch.device("cpu"))[1].startswith("  triton     runs")
    monkeypatch.delenv("TRITON_INTERPRET")
    assert "not here: triton needs a GPU" in doctor.packer_lines(torch.device("cpu"))[1]


def test_an_absent_package_is_named() -> None:
    assert doctor.version_of("no-such-package") == "not installed"
    assert doctor.version_of("torch")[0].isdigit()
