# SPDX-License-Identifier: Apache-2.0
"""benchmarks/fusions.py from check to report on the CPU: tiny shapes, a still clock."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import fusions_support as support
import pytest
import torch

from mxflux.fusions import catalog, reference, timing
from mxflux.fusions.rope_table import RopeTable

sys.path.insert(0, str(support.OVERLAY.parent / "benchmarks"))

import fusions as script
from fusion_bench import checks, measure, ops
from fusion_bench import peers as others
from fusion_bench.ops import OPS, Op
from fusion_bench.peers import Peer
from fusion_bench.report import markdown, write


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ops, measure):
        monkeypatch.setattr(module, "DEVICE", "cpu")
    for name, value in (("HEADS", 2), ("HEAD_DIM", 32), ("HIDDEN", 64)):
        monkeypatch.setattr(catalog, name, value)
    for function, defaults in ((ops.rope_inputs, (2, 32)), (ops.q_inputs, (2, 32)),
                               (ops.ln_inputs, (64,))):  # fmt: skip
        monkeypatch.setattr(function, "__defaults__", defaults)


def test_checks_pass_on_the_real_kernels() -> None:
    for op in OPS:
        assert checks.check(op, 7, 2) == []


def test_checks_find_a_wrong_kernel() -> None:
    def off(*args: Any) -> tuple[torch.Tensor, ...]:
        return (OPS[2].run(*args)[0] * 1.01,)

    broken = Op(**{**vars(OPS[2]), "run": off})
    problems = checks.check(broken, 7, 2)
    assert any("above the chain's" in p for p in problems)
    assert any("the registered op differs" in p for p in problems)


def test_report_from_start_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def once(run: Any, *_: Any, **__: Any) -> float:
        run()
        return 50.0

    monkeypatch.setattr(timing, "device_time", once)
    monkeypatch.setattr(timing, "enqueue_time", once)
    monkeypatch.setattr(timing, "copy_bandwidth", lambda: 4.3e12)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "none")
    monkeypatch.setattr(catalog, "SHAPES", ((6, 2), (9, 1)))
    monkeypatch.setattr(script, "CHECKED_SHAPES", ((5, 2),))
    monkeypatch.setattr(script, "TARGET_SHAPES", ((9, 1),))
    monkeypatch.setattr(script, "COMPILED_SHAPE", (6, 2))
    alike = Peer("the same", lambda x, sc, sh, _: (reference.ln_modulate(x, sc, sh),), batch=1)
    found = {"ln_modulate": [alike]}
    monkeypatch.setattr(script, "peers", lambda op: (found.get(op.name, []), ["one is missing"]))
    compiled = lambda run, **_: run  # noqa: E731
    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(script, "check_compiled", lambda *_: [])
    report = script.run(0, lambda unfinished: write(unfinished, tmp_path))
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
    assert len(rows) == len(OPS) * 2 * (2 + 2 + 1) + 2
    assert [row[:3] for row in rows if row[3] == "the same"] == [
        ("ln_modulate", 9, "forward"),
        ("ln_modulate", 9, "backward"),
    ]
    assert report.skipped.count("one is missing") == len(OPS)
    assert sum("out of time" in reason for reason in report.skipped) == len(OPS)
    text = markdown(report)
    assert "|norm_rope_qkv|6x2|forward|" in text
    assert any("enqueue 50.0 us" in miss for miss in report.misses)
    json.dumps(asdict(report))


def test_a_peer_that_computes_something_else_is_found() -> None:
    def unscaled(x: torch.Tensor, sc: torch.Tensor, sh: torch.Tensor, _: Any) -> tuple[Any, ...]:
        return (reference.ln_modulate(x, 0.9 * sc, sh),)

    op = OPS[2]
    assert checks.check_peer(op, Peer("the same", op.chain), 7, 2) == []
    problems = checks.check_peer(op, Peer("another", unscaled), 7, 2)
    assert problems
    assert problems[0].startswith("ln_modulate 7x2: another: tensor 0: error")


def test_the_forms_that_peers_want_a_table_in_hold_its_angles() -> None:
    angles = torch.rand(5, 1, 1, 16).repeat_interleave(2, -1) * 6.28 - 3.14
    table = RopeTable.from_angles(angles)
    assert others._angles(table).shape == (5, 1, 1, 32)
    torch.testing.assert_close(others._angles(table), angles)
    rows = others._complex_rows(table, 3)
    assert rows.shape == (15, 16)
    torch.testing.assert_close(rows[4].angle(), angles[1, 0, 0, ::2])


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    found, missing = others.peers(OPS[0])
    assert found == []
    assert missing == [
        "norm_rope_qkv: transformer_engine is not installed",
        "norm_rope_qkv: liger_kernel is not installed",
    ]


def test_bytes_are_the_floor_of_the_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "HEADS", 24)
    monkeypatch.setattr(catalog, "HEAD_DIM", 128)
    monkeypatch.setattr(catalog, "HIDDEN", 3072)
    megabytes = {
        op.name: [round(f(512, 64) / 1e6) for f in (op.forward_bytes, op.backward_bytes)]
        for op in OPS
    }
    assert megabytes["norm_rope_qkv"] == [1215, 1617]
    assert megabytes["ln_modulate"] == [404, 605]
    assert support.BF16 == ops.BF16
