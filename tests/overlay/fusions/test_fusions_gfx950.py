# SPDX-License-Identifier: Apache-2.0
"""The gfx950 gate: the committed table holds, and each kind of regression is found."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import fusions_support as support
import pytest

from mxflux.fusions import gfx950

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results"
ROW = gfx950.Row(
    "op", "kernel", "BLOCK_M=16", 512, 32, 1280, True, 4, 90, 40, 0, 0, 5, 16, True, 1.0, 1.0, "aa"
)


def test_committed_table_holds() -> None:
    done = support.run_python("-m", "mxflux.fusions.gfx950", "--check", "--results", str(RESULTS))
    assert done.returncode == 0, done.stderr + done.stdout
    assert "94 kernels compiled for gfx950, 0 problems" in done.stdout


def test_buffer_instructions_where_and_only_where_32_bits_reach() -> None:
    """Past 2 GiB 32-bit row offsets wrap (ROCm/triton #944, #830, #871).

    LN-modulate keeps them there safely: with one row a step its 64-bit row offset is scalar, part
    of the descriptor's base; only the column stays in the 32-bit part.
    """
    rows = json.loads((RESULTS / "gfx950-fusions.json").read_text(encoding="utf-8"))[
        "rows"
    ].values()
    large = [row for row in rows if row["batch"] == gfx950.LARGE[1]]
    # the words of stochastic rounding are read through a pointer that may not be rewritten
    random = [row for row in rows if "grad_pack" in row["op"] and "mxfp4 " in row["config"]]
    assert len(random) == 2
    assert all(row["buffer_ops"] for row in rows if row not in large and row not in random)
    rope = [row for row in large if row["kernel"].startswith(("qkv", "norm_rope"))]
    assert len(rope) == 4
    assert not any(row["buffer_ops"] for row in rope)
    one_row = [row for row in large if row["kernel"].startswith("ln_modulate")]
    assert all("BLOCK_R=1" in row["config"] for row in one_row)


def test_an_interpreting_process_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        gfx950.main(["--check"])
    assert stop.value.code == 2
    assert "TRITON_INTERPRET=1 is set" in capsys.readouterr().err


def test_every_regression_is_named() -> None:
    committed = {ROW.key: asdict(ROW)}
    assert gfx950.regressions([ROW], committed) == []
    for change, message in (
        ({"spills": 3}, "3 spills, expected 0"),
        ({"occupancy": 4}, "occupancy 4, was 5"),
        ({"load_bytes": 8}, "load_bytes 8, was 16"),
        ({"buffer_ops": False}, "lost its buffer instructions"),
    ):
        assert message in gfx950.regressions([replace(ROW, **change)], committed)[0]
    assert "not in the committed table" in gfx950.regressions([ROW], {})[0]
    assert "no longer compiled" in gfx950.regressions([], committed)[0]


def test_duplicate_binaries_are_found() -> None:
    other = replace(ROW, config="BLOCK_M=16,num_warps=8")
    assert gfx950.duplicates([ROW, replace(ROW, batch=64)]) == []
    assert gfx950.duplicates([ROW, other]) == [
        "op kernel: same binary for BLOCK_M=16 and BLOCK_M=16,num_warps=8"
    ]


def test_programs_that_wait_for_others_are_found() -> None:
    assert gfx950.waiting([ROW]) == []  # 5 waves a SIMD: five programs of four waves a unit
    crowded = replace(ROW, occupancy=4)
    assert gfx950.waiting([crowded, replace(crowded, loops=False)]) == [
        "op kernel BLOCK_M=16 512x32: 1280 looping programs, 1024 are resident"
    ]


def test_a_kernel_loops_when_its_programs_have_more_than_one_step() -> None:
    looping = {"norm_rope_backward", "qkv_backward", "ln_modulate_backward"}
    rows = json.loads((RESULTS / "gfx950-fusions.json").read_text(encoding="utf-8"))["rows"]
    assert looping <= {row["kernel"] for row in rows.values() if row["loops"]}
    forwards = [row for row in rows.values() if row["kernel"] == "ln_modulate_forward"]
    assert {row["loops"] for row in forwards} == {True, False}
    assert not any(row["loops"] for row in rows.values() if row["kernel"] == "qkv_forward")
