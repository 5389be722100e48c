# SPDX-License-Identifier: Apache-2.0
"""doctor: every backend and packer has a line, and what is missing has a reason."""

from __future__ import annotations

import json
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


def test_the_machine_form_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    page = doctor.report()
    assert [tool["name"] for tool in found["backends"]] == list(BACKENDS)
    for tool in (*found["backends"], *found["packers"]):
        said = "runs: " if tool["missing"] is None else f"not here: {tool['missing']}"
        assert f"  {tool['name']:<10} {said}" in page
        assert ", ".join(tool["formats"]) in page


def test_every_missing_backend_says_why_and_what_it_would_take() -> None:
    tools = doctor.backends_here(torch.device("cpu"))
    assert len(tools) == len(BACKENDS)
    for line in (tool.line() for tool in tools):
        assert " runs: " in line or (" not here: " in line and "would take e" in line)


def test_packers_follow_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert doctor.packers_here(torch.device("cpu"))[1].missing is None
    monkeypatch.delenv("TRITON_INTERPRET")
    assert "triton needs a GPU" in str(doctor.packers_here(torch.device("cpu"))[1].missing)


def test_an_absent_package_is_named() -> None:
    assert doctor.version_of("no-such-package") == "not installed"
    assert doctor.version_of("torch")[0].isdigit()
