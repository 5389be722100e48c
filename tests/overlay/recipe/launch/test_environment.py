# SPDX-License-Identifier: Apache-2.0
"""The environment of the ranks: from the recipe, named where it differs, refused where needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mxflux.recipe import RecipeError
from mxflux.recipe.launch import environment, variables

if TYPE_CHECKING:
    from conftest import MakeRecipe

REFERENCE = Path(__file__).parents[4] / "docs" / "reference" / "environment.md"


def values(recipe: MakeRecipe, device: str, **changes: object) -> dict[str, str | None]:
    return {v.name: v.value for v in variables.of(recipe(device, **changes).recipe)}


def test_transformer_engine_gets_its_switches_from_the_recipe(recipe: MakeRecipe) -> None:
    found = values(recipe, "mi355x")
    expected = {
        "MXFLUX_GEMM_BACKEND": "aiter",
        "NVTE_FLASH_ATTN": "0",
        "NVTE_FUSED_ATTN": "1",
        "NVTE_FUSED_ATTN_CK": "1",
        "NVTE_MXFP4_USE_HADAMARD": "0",
        "NVTE_UNFUSED_ATTN": "0",
        "NVTE_USE_CAST_TRANSPOSE_TRITON": "0",
        "NVTE_USE_HIPBLASLT": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    }
    assert {name: found[name] for name in expected} == expected
    assert values(recipe, "mi355x", precision__mx_hadamard=True)["NVTE_MXFP4_USE_HADAMARD"] == "1"


def test_other_precisions_and_backends(recipe: MakeRecipe) -> None:
    flash = values(recipe, "mi355x", model__attention_backend="flash")
    assert (flash["NVTE_FLASH_ATTN"], flash["NVTE_FUSED_ATTN"]) == ("1", "0")
    assert flash["NVTE_FUSED_ATTN_CK"] is None
    auto = values(recipe, "mi355x", model__attention_backend="auto")
    assert [auto[f"NVTE_{name}_ATTN"] for name in ("FLASH", "FUSED", "UNFUSED")] == [None] * 3
    assert values(recipe, "mi355x", precision={})["MXFLUX_GEMM_BACKEND"] is None


def test_a_cpu_run_sees_no_gpu_and_needs_no_switch(recipe: MakeRecipe) -> None:
    found = {name: value for name, value in values(recipe, "cpu").items() if value is not None}
    assert found == {
        "CUDA_VISIBLE_DEVICES": "-1",
        "HIP_VISIBLE_DEVICES": "-1",
        "OMP_NUM_THREADS": "1",
        "PYTHONFAULTHANDLER": "1",
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }


def test_every_difference_is_named(recipe: MakeRecipe) -> None:
    inherited = {
        "AITER_JIT_DIR": "/jit",
        "AITER_LOG_TUNED_CONFIG": "1",
        "HOME": "/home/a",
        "NCCL_SOCKET_IFNAME": "eth0",
        "NVTE_DEBUG": "1",
        "NVTE_FUSED_ATTN": "0",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": "/elsewhere",
        "RANK": "3",
    }
    plan = environment.plan(recipe("mi355x").recipe, inherited)
    shown = {change.name: change.action for change in plan.changes if change.name in inherited}
    assert shown == {
        "AITER_JIT_DIR": "keep",
        "AITER_LOG_TUNED_CONFIG": "unset",
        "NCCL_SOCKET_IFNAME": "keep",
        "NVTE_DEBUG": "unset",
        "NVTE_FUSED_ATTN": "replace",
        "OMP_NUM_THREADS": "set",
        "PYTHONPATH": "unset",
        "RANK": "unset",
    }
    after = plan.apply(inherited)
    assert (after["HOME"], after["NVTE_FUSED_ATTN"]) == ("/home/a", "1")
    assert not {"NVTE_DEBUG", "PYTHONPATH", "RANK"} & after.keys()
    lines = [str(change) for change in plan.changes]
    assert "replace  NVTE_FUSED_ATTN=1 (was '0'): model.attention_backend: fused" in lines
    delta = plan.to_json()
    assert delta["unset"]["NVTE_DEBUG"] == "1"
    assert delta["replaced"] == {"NVTE_FUSED_ATTN": "0"}
    assert delta["kept"] == {"AITER_JIT_DIR": "/jit", "NCCL_SOCKET_IFNAME": "eth0"}
    assert plan.problems == ()


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("MXFLUX_GEMM_BACKEND", "triton", "MXFLUX_GEMM_BACKEND=aiter (precision.gemm_backend)"),
        ("NVTE_MXFP4_USE_HADAMARD", "1", "NVTE_MXFP4_USE_HADAMARD=0 (precision.mx_hadamard)"),
        ("NVTE_BACKWARD_OVERRIDE", "high_precision", "unset (precision.mx_backward_precision)"),
        ("HSA_OVERRIDE_GFX_VERSION", "9.4.2", "unset (a GPU that passes for another"),
    ],
)
def test_what_would_train_another_model_stops_the_launch(
    recipe: MakeRecipe, name: str, value: str, wanted: str
) -> None:
    (problem,) = environment.plan(recipe("mi355x").recipe, {name: value}).problems
    assert f"{name}={value} is exported here" in problem
    assert wanted in problem
    assert f"`unset {name}`" in problem
    assert environment.plan(recipe("cpu").recipe, {name: value}).problems == ()


def test_the_same_value_is_no_conflict(recipe: MakeRecipe) -> None:
    inherited = {"MXFLUX_GEMM_BACKEND": "aiter", "NVTE_MXFP4_USE_HADAMARD": "0"}
    assert environment.plan(recipe("mi355x").recipe, inherited).problems == ()


def test_a_recipe_adds_variables_but_not_the_launchers(recipe: MakeRecipe) -> None:
    extra = {"NCCL_DEBUG": "INFO", "NVTE_DEBUG": "1", "HIP_LAUNCH_BLOCKING": "1"}
    loaded = recipe("mi355x", launch__environment=extra)
    plan = environment.plan(loaded.recipe, {"NCCL_DEBUG": "WARN"})
    assert extra.items() <= plan.apply({}).items()
    assert plan.to_json()["replaced"] == {"NCCL_DEBUG": "WARN"}
    assert plan.problems == ()


@pytest.mark.parametrize("name", ["NVTE_FUSED_ATTN", "PYTHONPATH", "WORLD_SIZE"])
def test_a_recipe_cannot_overrule_the_launcher(recipe: MakeRecipe, name: str) -> None:
    with pytest.raises(RecipeError, match=rf"{name} belongs to the launcher \(.*\); remove it"):
        recipe("mi355x", launch__environment={name: "0"})


def test_deterministic_mode(recipe: MakeRecipe) -> None:
    found = values(recipe, "mi355x", schedule__deterministic_mode=True)
    assert found["NVTE_ALLOW_NONDETERMINISTIC_ALGO"] == "0"
    assert (found["NCCL_ALGO"], found["CUBLAS_WORKSPACE_CONFIG"]) == ("Ring", ":4096:8")


def test_the_reference_lists_every_variable(recipe: MakeRecipe) -> None:
    text = REFERENCE.read_text("utf-8")
    owned = {*values(recipe, "mi355x", schedule__deterministic_mode=True), *values(recipe, "cpu")}
    missing = [name for name in owned if f"`{name}`" not in text]
    assert missing == []
    families = [prefix for prefix in variables.FAMILIES if f"`{prefix}*`" not in text]
    assert families == []
    assert [name for name in variables.LOCATIONS if f"`{name}`" not in text] == []
