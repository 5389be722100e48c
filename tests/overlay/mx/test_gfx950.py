# SPDX-License-Identifier: Apache-2.0
"""gfx950: a real compile in its own process, the rules that fail it, the lint of the kernels."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mxflux.mx import gfx950
from mxflux.mx.compile_only import Resources

ROOT = Path(__file__).resolve().parents[3]
GOOD = Resources(vgpr=40, agpr=0, sgpr=30, lds=0, spills=0, scratch=0, occupancy=8, binary="00")


def run(tmp_path: Path, *argv: str, **extra: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    env |= {"PYTHONPATH": str(ROOT / "overlay"), "TRITON_CACHE_DIR": str(tmp_path), **extra}
    command = [sys.executable, "-m", "mxflux.mx.gfx950", *argv]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_a_compiled_kernel_meets_the_committed_table(tmp_path: Path) -> None:
    done = run(tmp_path, "--check", "--only", "e2m3 dual, aiter")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| pack: e2m3 dual, aiter a6w6 |" in done.stdout


def test_a_regression_against_the_table_fails(tmp_path: Path) -> None:
    table = json.loads((ROOT / gfx950.TABLE).read_text(encoding="utf-8"))
    table["kernels"]["pack: e4m3 row"]["vgpr"] -= gfx950.VGPR_SLACK + 10
    (tmp_path / "table.json").write_text(json.dumps(table), encoding="utf-8")
    done = run(tmp_path, "--check", str(tmp_path / "table.json"), "--only", "e4m3 row")
    assert done.returncode == 1
    assert "FAIL pack: e4m3 row" in done.stdout


def test_missing_table_and_interpreter_are_exit_4(tmp_path: Path) -> None:
    done = run(tmp_path, "--check", "no-such.json")
    assert (done.returncode, "no such table" in done.stdout) == (4, True)
    done = run(tmp_path, "--only", "nothing", TRITON_INTERPRET="1")
    assert (done.returncode, "unset it" in done.stdout) == (4, True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spills": 3}, "3 spilled registers"),
        ({"scratch": 16}, "16 bytes of scratch"),
        ({"occupancy": 3}, "occupancy 3, at least 4"),
    ],
)
def test_rules_without_a_table(change: dict[str, Any], message: str) -> None:
    assert list(gfx950.violations({"pack: x": GOOD})) == []
    bad = dataclasses.replace(GOOD, **change)
    assert message in next(gfx950.violations({"pack: x": bad}))


def test_two_settings_with_one_binary_fail() -> None:
    (problem,) = gfx950.violations({"pack: a": GOOD, "pack: b": GOOD})
    assert problem == "pack: b: the same binary as pack: a: a setting does nothing"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vgpr": 60}, "60 VGPR, was 40"),
        ({"occupancy": 7}, "occupancy 7, was 8"),
        ({"lds": 64}, "64 bytes"),
    ],
)
def test_regressions_are_named(change: dict[str, Any], message: str) -> None:
    table = {"pack: x": GOOD.as_dict()}
    assert list(gfx950.regressions({"pack: x": GOOD}, table)) == []
    worse = dataclasses.replace(GOOD, **change)
    assert message in next(gfx950.regressions({"pack: x": worse}, table))
    assert "not in the table" in next(gfx950.regressions({"pack: y": GOOD}, table))


def test_no_kernel_loads_with_a_mask_and_without_other() -> None:
    sources = gfx950.kernel_sources()
    assert len(sources) >= 3
    for path in sources:
        assert list(gfx950.unmasked_loads(path.read_text(encoding="utf-8"), path.name)) == []


@pytest.mark.parametrize("call", ["tl.load(p, mask=m)", "tl.load(p, m)"])
def test_the_lint_finds_one(call: str) -> None:
    (problem,) = gfx950.unmasked_loads(f"x = 1\ny = {call}\n", "k.py")
    assert problem == "k.py:2: tl.load with a mask and without other="
    assert list(gfx950.unmasked_loads("tl.load(p, mask=m, other=0)", "k.py")) == []


def test_the_table_holds_every_case_and_no_spill() -> None:
    kernels = json.loads((ROOT / gfx950.TABLE).read_text(encoding="utf-8"))["kernels"]
    assert {f"pack: {name}" for name in gfx950.packer_cases()} < set(kernels)
    assert all(k["spills"] == k["scratch"] == 0 for k in kernels.values())
