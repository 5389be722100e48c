# SPDX-License-Identifier: Apache-2.0
"""Patched Megatron on patched TE: fp4_recipe=mxfp4 reaches MXFP4BlockScaling, and it computes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from support import te_megatron

#: Stock Megatron knows neither the flag nor the recipe.
STOCK = "unexpected keyword argument 'fp4_use_native_te_autocast'"
PER_LAYER = (
    "self_attention.linear_proj",
    "self_attention.linear_qkv",
    "mlp.linear_fc1",
    "mlp.linear_fc2",
)
MICRO_BATCHES = 2


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Outcome of every piece of one process."""
    return te_megatron.run()


def piece(found: dict[str, Any], name: str) -> dict[str, Any]:
    """A piece that ran."""
    result = found[name]
    assert not isinstance(result, str), result
    return result


def linears(*layers: int) -> set[str]:
    return {f"layers.{layer}.{name}" for layer in layers for name in PER_LAYER}


@pytest.mark.control(STOCK)
@pytest.mark.parametrize("fusion", ["fused", "unfused"])
def test_every_linear_of_the_block_runs_in_mxfp4(found: dict[str, Any], fusion: str) -> None:
    result = piece(found, fusion)
    assert set(result["expected"]) == linears(0, 1, 2)
    assert Counter(tuple(key) for *key, n in result["gemms"] for _ in range(n)) == {
        (name, direction, "e2m1", "emulated"): MICRO_BATCHES
        for name in linears(0, 1, 2)
        for direction in ("fprop", "dgrad", "wgrad")
    }
    assert result["native"] == 0
    assert result["fused"] == [fusion == "fused"]


@pytest.mark.control(STOCK)
def test_fused_main_grad_is_the_sum_of_the_unfused_gradients(found: dict[str, Any]) -> None:
    fused, unfused = piece(found, "fused")["weights"], piece(found, "unfused")["weights"]
    assert {name.removesuffix(".weight") for name in fused} == linears(0, 1, 2)
    for name, values in fused.items():
        ours, theirs = torch.tensor(values), torch.tensor(unfused[name])
        assert theirs.any()
        # The unfused sum rounds to bf16 three times.
        error = (ours - theirs).norm() / theirs.norm()
        assert error < 2.0**-7, f"{name}: {error}"


@pytest.mark.control(STOCK)
def test_layers_kept_in_bf16_are_the_only_native_ones(found: dict[str, Any]) -> None:
    result = piece(found, "first and last layer in bf16")
    assert {key[0] for key in result["gemms"]} == linears(1)
    assert result["native"] == 2 * len(PER_LAYER) * 3 * MICRO_BATCHES


@pytest.mark.control(STOCK)
def test_checkpoints_hold_no_pickled_recipe(found: dict[str, Any]) -> None:
    state = piece(found, "fused")["extra_state"]
    assert set(linears(0, 1, 2)) <= {name.removesuffix("._extra_state") for name in state}
    assert set(state.values()) == {0}


@pytest.mark.control(STOCK)
def test_without_a_backend_the_first_forward_says_what_to_set(found: dict[str, Any]) -> None:
    error = found["without backend"]
    assert "no GEMM backend is chosen" in error, error
    assert "MXFLUX_GEMM_BACKEND" in error
