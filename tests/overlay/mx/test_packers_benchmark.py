# SPDX-License-Identifier: Apache-2.0
"""benchmarks/packers.py, what needs no GPU: comparison, floors, tables, order of a sweep."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

from packer_bench import checks, inputs, measure, report, sweep
from packer_bench.measure import Row

from mxflux.mx import FORMATS, QuantSpec, rng_state


def test_inputs_hold_what_they_promise() -> None:
    every = inputs.exhaustive("cpu")
    assert every.shape == (4096, 1024)
    assert len(every.view(torch.int16).unique()) == 65536
    hard = inputs.adversarial(64, 96, "cpu")
    assert hard.isnan().any()
    assert hard.isposinf().any()
    assert hard.isneginf().any()
    finite = hard[hard.isfinite() & (hard != 0)].double().abs()
    assert finite.max() / finite.min() > 2.0**200


def test_every_format_mode_and_layout_is_compared() -> None:
    names = [name for name, _, _ in inputs.check_cases()]
    assert len(names) == len(set(names))
    for fmt in FORMATS:
        assert {f"{fmt} floor", f"{fmt} rotated 32", f"{fmt} stochastic"} <= set(names)
    assert len(inputs.cases_for(False)) == len(FORMATS)


def test_a_packer_that_differs_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(32, 64).bfloat16()
    spec, rng = QuantSpec("e2m1"), rng_state(20, 7, "cpu")
    checks.compare("right", x, spec, spec, rng)
    right = checks.quantize_dual

    def wrong(x: torch.Tensor, *specs: QuantSpec, packer: str, **more: object) -> object:
        return right(x * (2 if packer == "triton" else 1), *specs, packer=packer, **more)

    monkeypatch.setattr(checks, "quantize_dual", wrong)
    with pytest.raises(SystemExit, match=r"doubled: row (data|scale) differs from the reference"):
        checks.compare("doubled", x, spec, spec, rng)


def test_the_byte_floor_counts_input_codes_and_scales() -> None:
    elements = 32768 * 3072
    assert measure.packer_bytes("row", "e2m1") == elements * 2 + elements // 2 + elements // 32
    assert measure.packer_bytes("dual", "e4m3") == elements * 2 + 2 * (elements + elements // 32)


def test_the_table_judges_against_the_larger_floor() -> None:
    rows = [
        Row("e2m1", "row", 140.0, 100.0, 50.0, 32),
        Row("e2m3", "dual", 300.0, 100.0, 120.0, 64),
        Row("e4m3", "column", 150.0, 100.0, None, 40),
    ]
    cells = [line.split(" | ") for line in report.packer_table(rows)[2:]]
    assert [line[-1] for line in cells] == [
        "1.40x (met: <= 1.4) |",
        "2.50x (MISSED: <= 2.0) |",
        "1.50x (met: <= 2.0) |",
    ]
    assert cells[2][4] == "-"


def test_a_sweep_tries_every_tile_once_and_the_likeliest_first() -> None:
    order = list(sweep.sweep_order())
    assert max(Counter(order).values()) == 1
    assert len(order) == len(measure.TIMED) * sum(map(len, sweep.SWEEP.values()))
    first = order[: len(measure.TIMED) * len(measure.KINDS)]
    assert all(tile == sweep.SWEEP[kind][0] for kind, _, tile in first)
