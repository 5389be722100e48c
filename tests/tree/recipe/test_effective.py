# SPDX-License-Identifier: Apache-2.0
"""Requested = effective on real Megatron: nothing changes unseen, and what changes is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_recipe import TE, holders, origins, recipe

from mxflux.recipe import load
from mxflux.recipe.effective import EffectiveError, examine
from mxflux.recipe.effective.arguments import ArgumentsError, is_available, validated

pytestmark = pytest.mark.upstream(
    "megatron-lm>=0.17", reason="megatron.training ships from there on"
)
SHIPPED = Path(__file__).parents[3] / "recipes"
ROTATION = "model.apply_rope_fusion"


def statuses(report: Any) -> dict[str, str]:
    return {row.key: row.status for row in report.rows}


@pytest.mark.parametrize(
    "name",
    [
        "cpu/flux_tiny",
        "cpu/flux_tiny_mxfp4",
        "cpu/flux_tiny_mlperf",
        "h200/flux_535m_mxfp6",
        "mi355x/flux_12b_schnell_mxfp6",
    ],
)
def test_shipped_recipes_arrive_whole(name: str) -> None:
    loaded = load(SHIPPED / f"{name}.yaml", environ={})
    given = loaded.recipe
    report = examine(given, loaded.origins, holders(given), world_size=given.world_size)
    report.check()
    assert report.unchecked is None
    assert set(statuses(report).values()) == {"ok", "default"}
    asked = {key for key, origin in loaded.origins.items() if origin.kind != "default"}
    assert {key for key, status in statuses(report).items() if status == "ok"} == asked


def test_a_fused_rotation_that_megatron_clears_is_an_error() -> None:
    given = recipe({**TE, ROTATION: True, "model.position_embedding_type": "none"})
    report = examine(given, origins(ROTATION), holders(given), world_size=2)
    row = next(row for row in report.rows if row.key == ROTATION)
    assert (row.requested, row.arguments, row.validated, row.live) == (True, True, False, False)
    assert row.status == "overridden"
    with pytest.raises(EffectiveError) as caught:
        report.check()
    assert (
        "model.apply_rope_fusion: requested True (r.yaml:1), but Megatron's validate_args: Fal"
        in (str(caught.value))
    )
    assert "expect_overridden" in str(caught.value)


def test_an_expected_change_passes_and_is_marked() -> None:
    changes = {**TE, ROTATION: True, "model.position_embedding_type": "none"}
    given = recipe({**changes, "expect_overridden": [ROTATION]})
    report = examine(given, origins(ROTATION), holders(given), world_size=2)
    report.check()
    assert statuses(report)[ROTATION] == "expected"


@pytest.mark.parametrize(
    ("holder", "attribute", "value", "key"),
    [
        ("config", "fused_ln_modulate", "off", "model.fused_ln_modulate"),
        ("config", "fp6", None, "precision.fp6"),
        ("config", "num_single_layers", 7, "model.num_single_layers"),
        ("ddp", "overlap_grad_reduce", False, "parallel.overlap_grad_reduce"),
        ("ddp", "grad_reduce_in_fp32", False, "precision.grad_reduce_in_bf16"),
        ("optimizer", "adam_beta2", 0.999, "optimizer.adam_beta2"),
        ("scheduler", "lr_warmup_steps", 0, "optimizer.lr_warmup_iters"),
    ],
)
def test_a_live_value_that_drifted_is_found(
    holder: str, attribute: str, value: Any, key: str
) -> None:
    given = recipe(
        {
            "device": "h200",
            "precision.fp6": "e2m3",
            "precision.gemm_backend": "emulated",
            "model.fused_ln_modulate": "on",
            "parallel.overlap_grad_reduce": True,
            "optimizer.lr_warmup_iters": 10,
        }
    )
    built = holders(given)
    examine(given, {}, built, world_size=2).check()
    assert getattr(built[holder], attribute) != value
    setattr(built[holder], attribute, value)
    with pytest.raises(EffectiveError, match=key.replace(".", r"\.")):
        examine(given, {}, built, world_size=2).check()


@pytest.mark.parametrize("holder", ["config", "optimizer"])
def test_the_fp8_recipe_is_looked_up_in_both_of_its_places(holder: str) -> None:
    given = recipe({**TE, "precision.fp8": "hybrid", "precision.fp8_recipe": "tensorwise"})
    built = holders(given)
    examine(given, {}, built, world_size=2).check()
    built[holder].fp8_recipe = "delayed"
    with pytest.raises(EffectiveError, match=r"precision\.fp8_recipe: .*delayed"):
        examine(given, {}, built, world_size=2).check()


def test_what_megatron_refuses_is_an_error_in_its_words() -> None:
    given = recipe({**TE, "precision.fp4": "e2m1", "precision.fp4_recipe": "mxfp4"})
    with pytest.raises(ArgumentsError, match="validate_args refuses the recipe: --fp4-format"):
        examine(given, {}, {}, world_size=2)


def test_determinism_on_a_cpu_asks_for_nothing_of_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_ALGO", raising=False)
    given = recipe({"schedule.deterministic_mode": True})
    report = examine(given, {}, holders(given), world_size=2)
    report.check()
    row = next(row for row in report.rows if row.key == "schedule.deterministic_mode")
    assert (row.arguments, row.live) == (None, True)


def test_a_value_that_megatrons_command_line_does_not_have_is_an_error() -> None:
    with pytest.raises(ArgumentsError, match="command line refuses the recipe: argument --fp4-rec"):
        validated({"fp4_recipe": "mxfp9"}, world_size=1)
    with pytest.raises(ArgumentsError, match="has no argument for no_such='x'"):
        validated({"no_such": "x"}, world_size=1)
    with pytest.raises(ArgumentsError, match="Megatron's bf16 is a flag, not 'yes'"):
        validated({"bf16": "yes"}, world_size=1)


@pytest.mark.control(r"has no argument for defer_grad_buffer_zero=True")
def test_an_argument_of_the_patches_is_known() -> None:
    given = recipe({"parallel.defer_grad_buffer_zero": True})
    report = examine(given, {}, {}, world_size=2)
    row = next(row for row in report.rows if row.key == "parallel.defer_grad_buffer_zero")
    assert (row.requested, row.arguments, row.validated) == (True, True, True)


def test_the_rows_are_written(tmp_path: Path) -> None:
    given = recipe()
    report = examine(given, origins("optimizer.lr"), holders(given), world_size=2)
    report.write(tmp_path / "effective.json")
    rows = json.loads((tmp_path / "effective.json").read_text("utf-8"))
    assert [path.name for path in tmp_path.iterdir()] == ["effective.json"]
    found = next(row for row in rows if row["key"] == "optimizer.lr")
    assert found == {
        "key": "optimizer.lr",
        "requested": 2e-4,
        "arguments": 2e-4,
        "validated": 2e-4,
        "live": 2e-4,
        "origin": "r.yaml:1",
        "status": "ok",
    }


def test_megatron_without_a_training_part_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_available()
    monkeypatch.setattr("mxflux.recipe.effective.arguments.is_available", lambda: False)
    given = recipe()
    report = examine(given, {}, holders(given), world_size=2)
    assert report.to_json()[-1]["status"] == "unchecked"
