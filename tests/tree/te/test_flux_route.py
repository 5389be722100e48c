# SPDX-License-Identifier: Apache-2.0
"""Flux in TE's spec: fp6 and fp4 of its config reach the recipes, and every linear runs in them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from support import te_flux

#: Of stock TE for fp6, of stock Megatron for fp4.
NO_RECIPE = "needs MXFP6BlockScaling, which Transformer Engine .* lacks"
NO_FLAG = "NVFP4BlockScaling and custom are the only supported FP4 recipes"


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Outcome of every piece of one process."""
    return te_flux.run()


def piece(found: dict[str, Any], name: str) -> dict[str, Any]:
    """A piece that ran."""
    result = found[name]
    assert not isinstance(result, str), result
    return result


def formats(result: dict[str, Any]) -> Counter[tuple[str, ...]]:
    """Direction, format and backend of every GEMM."""
    return Counter(tuple(key[1:]) for *key, n in result["gemms"] for _ in range(n))


@pytest.mark.control(NO_RECIPE)
def test_fp6_runs_every_linear_in_mxfp6(found: dict[str, Any]) -> None:
    result = piece(found, "fp6")
    linears = result["quantized"]
    assert len(result["expected"]) == linears == 24
    assert {key[0] for key in result["gemms"]} == set(result["expected"])
    directions = ("fprop", "dgrad", "wgrad")
    assert formats(result) == {(d, "e2m3", "emulated"): linears for d in directions}
    assert result["native"] == 0
    assert result["finite"]
    assert set(result["extra_state"]) == {0}


@pytest.mark.control(NO_RECIPE)
def test_options_reach_the_recipe(found: dict[str, Any]) -> None:
    result = piece(found, "fp6 e3m2")
    n = result["quantized"]
    assert formats(result) == {
        ("fprop", "e3m2", "emulated"): n,
        ("dgrad", "e3m2", "emulated"): n,
        ("wgrad", "bf16", "torch"): n,
    }


@pytest.mark.control(NO_RECIPE)
def test_edge_layers_stay_in_bf16(found: dict[str, Any]) -> None:
    result = piece(found, "fp6, edges in bf16")
    blocks = {".".join(key[0].split(".")[:3]) for key in result["gemms"]}
    assert blocks == {"transformer.layers.1", "transformer.layers.2"}
    left_out = result["quantized"] - len({key[0] for key in result["gemms"]})
    assert result["native"] == 3 * left_out


@pytest.mark.control(NO_FLAG)
def test_fp4_runs_every_linear_in_mxfp4(found: dict[str, Any]) -> None:
    result = piece(found, "fp4")
    directions = ("fprop", "dgrad", "wgrad")
    assert formats(result) == {(d, "e2m1", "emulated"): result["quantized"] for d in directions}
    assert result["native"] == 0


@pytest.mark.control(NO_RECIPE)
def test_without_a_backend_nothing_runs(found: dict[str, Any]) -> None:
    assert "no GEMM backend is chosen" in found["no backend"], found["no backend"]


@pytest.mark.control(NO_RECIPE)
def test_an_option_that_no_recipe_has_is_refused(found: dict[str, Any]) -> None:
    error = found["unknown option"]
    assert "use_hadamad: MXFP6BlockScaling of Transformer Engine" in error, error


def test_without_a_precision_every_gemm_is_native(found: dict[str, Any]) -> None:
    result = piece(found, "bf16")
    assert result["gemms"] == []
    assert result["native"] == 3 * result["quantized"]


@pytest.mark.parametrize("precision", ["fp6", "fp4"])
def test_training_and_evaluation_use_the_weights_of_now(
    found: dict[str, Any], precision: str
) -> None:
    result = piece(found, f"{precision}, weights change")
    assert result["used"] == result["fresh"]
    assert len(set(result["fresh"])) == 3
