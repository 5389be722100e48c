# SPDX-License-Identifier: Apache-2.0
"""Configuration tables: shipped ones are whole, lookups, faults are named."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import fusions_support as support  # noqa: F401
import pytest

from mxflux.fusions import catalog, tables, tune


def shipped(arch: str) -> dict[str, Any]:
    return json.loads((tables.DIRECTORY / f"{arch}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("arch", ["gfx950", "sm_90"])
def test_shipped_tables_serve_every_op_at_every_shape(arch: str) -> None:
    assert shipped(arch)["arch"] == arch
    for op, keys in tables.OPS.items():
        for seq, batch in (*catalog.SHAPES, (1, 1), (10**6, 64)):
            assert set(tables.configuration(arch, op, *catalog.table_rows(op, seq, batch))) == set(
                keys
            )


@pytest.mark.parametrize("arch", ["gfx950", "sm_90"])
def test_shipped_tables_are_as_the_tuner_writes_them(arch: str) -> None:
    text = (tables.DIRECTORY / f"{arch}.json").read_text(encoding="utf-8")
    assert tune.dump(json.loads(text)) == text


def test_rows_choose_the_first_entry_that_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    data = shipped("sm_90")
    small, large = ({"BLOCK_M": m, "num_warps": 4} for m in (8, 16))
    data["ops"]["qkv_forward"] = [
        {"width": 64, "max_rows": None, **large},
        {"width": 128, "max_rows": 100, **small},
        {"width": 128, "max_rows": None, **large},
    ]
    table = tables.parse(data, "x.json")
    monkeypatch.setattr(tables, "load", lambda _: table)
    assert tables.configuration("sm_90", "qkv_forward", 128, 100) == small
    assert tables.configuration("sm_90", "qkv_forward", 256, 101) == large
    assert tables.configuration("sm_90", "qkv_forward", 16, 1) == large


@pytest.mark.parametrize(
    ("arch", "name"), [("gfx942", "gfx950"), ("sm_100", "sm_90"), ("gfx950", "gfx950")]
)
def test_other_architectures_use_their_vendors_table(arch: str, name: str) -> None:
    assert tables.table_name(arch) == name


@pytest.mark.parametrize(
    ("arch", "found"),
    [
        ("sm_90", True),
        ("sm_120", True),
        ("sm_80", False),
        ("gfx950", False),
        ("interpreter", False),
    ],
)
def test_where_a_kernel_may_start_before_the_one_in_front_ended(arch: str, found: bool) -> None:
    assert tables.dependent_launches(arch) is found


def test_an_older_triton_launches_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.backends.nvidia import compiler

    monkeypatch.setattr(compiler, "CUDAOptions", SimpleNamespace(num_warps=4))
    assert not tables.dependent_launches("sm_90")


def broken(change: Any) -> dict[str, Any]:
    data = shipped("sm_90")
    change(data)
    return data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format=2), "x.json: format: got 2, expected 1"),
        (lambda d: d["ops"].pop("qkv_forward"), "x.json: ops: got"),
        (
            lambda d: d["ops"]["qkv_forward"][0].pop("BLOCK_M"),
            r"qkv_forward: keys \['num_warps'\], expected",
        ),
        (
            lambda d: d["ops"]["qkv_forward"][-1].update(max_rows=5),
            "max_rows must rise and end with null",
        ),
        (lambda d: d["ops"].update(qkv_forward=[]), "qkv_forward: no entries"),
    ],
)
def test_broken_tables_are_named(change: Any, message: str) -> None:
    with pytest.raises(tables.TableError, match=message):
        tables.parse(broken(change), "x.json")


def test_tuned_entries_merge_equal_neighbours_and_end_open() -> None:
    a, b = {"BLOCK_M": 8, "num_warps": 4}, {"BLOCK_M": 16, "num_warps": 8}
    best = {(512, 64): b, (512, 32): b, (256, 32): a, (4608, 1): a}
    rows = tune.entries("qkv_forward", best)
    assert [row["max_rows"] for row in rows] == [round((196608 * 393216) ** 0.5), None]
    assert [row["BLOCK_M"] for row in rows] == [8, 16]


@pytest.mark.parametrize("op", tables.OPS)
@pytest.mark.parametrize(("units", "lanes"), [(132, 32), (256, 64)])
def test_candidates_have_exactly_the_keys_of_their_op(op: str, units: int, lanes: int) -> None:
    found = tune.candidates(op, units, lanes)
    assert len(found) == len({tuple(sorted(c.items())) for c in found}) > 3
    assert all(set(config) == set(tables.OPS[op]) for config in found)


def test_a_tuned_table_is_whole_and_takes_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(multi_processor_count=132, warp_size=32, name="none")
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: properties)
    monkeypatch.setattr(tune, "precompile", lambda _, jobs, __: jobs)
    monkeypatch.setattr(tune, "time_op", lambda *a: float(abs(a[-2]["num_warps"] - 4) + a[3] / 64))
    monkeypatch.setattr(tune, "time_reduction", lambda *a: float(a[-2]["BLOCK_P"]))
    log: dict[str, object] = {}
    table = tune.tune("sm_90", 1, log)
    whole = tables.parse(json.loads(tune.dump(table)), "x.json")
    assert {entry.config["num_warps"] for op in list(whole)[:-1] for entry in whole[op]} == {4}
    assert [entry.width for entry in whole["reduce_partials"]] == sorted(tune.REDUCTIONS)
    assert len(log) == 8 * len(catalog.SHAPES) + len(tune.REDUCTIONS)


def test_the_best_few_are_timed_again_for_longer() -> None:
    configs = [{"num_warps": n} for n in range(20)]
    asked: list[tuple[int, int]] = []

    def time(config: dict[str, int], repeats: int) -> float:
        asked.append((config["num_warps"], repeats))
        lucky = config["num_warps"] == 19 and repeats < 20
        return 0.0 if lucky else float(config["num_warps"])

    best, log = tune.fastest(configs, time)
    assert best == {"num_warps": 0}  # not the lucky one
    assert [n for n, repeats in asked if repeats > 20] == [0, 19, 1, 2, 3, 4]
    assert len(log) == len(asked) == 26


def test_tuning_one_op_keeps_the_rows_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(multi_processor_count=2, warp_size=32, name="none")
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: properties)
    monkeypatch.setattr(tune, "time_reduction", lambda *a: float(-a[-2]["BLOCK_P"]))
    before = json.loads((tables.DIRECTORY / "sm_90.json").read_text())["ops"]
    monkeypatch.setattr(tune, "precompile", lambda _, jobs, __: jobs)
    after = tune.tune("sm_90", 1, {}, ("reduce_partials",))["ops"]
    assert isinstance(after, dict)
    assert {row["BLOCK_P"] for row in after["reduce_partials"]} == {1024}
    assert list(after) == list(tables.OPS)
    assert {op for op in tables.OPS if after[op] != before[op]} == {"reduce_partials"}


def test_the_tuner_says_that_it_needs_a_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit) as stop:
        tune.main([])
    assert stop.value.code == 2
    assert "no GPU: tuning times kernels" in capsys.readouterr().err
