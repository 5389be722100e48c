# SPDX-License-Identifier: Apache-2.0
"""Patch 0008: what runs under another custom recipe than before uses that recipe's quantizers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformer_engine.pytorch as te
from support.te_exact import ExactFactory
from transformer_engine.common.recipe import CustomRecipe

IN, OUT = 64, 48
STALE = "the quantizers of the old recipe were used"


def inputs_quantized(module: torch.nn.Module, *factories: ExactFactory) -> list[int]:
    """One forward for each factory, under a recipe made for it; inputs that each quantized."""
    for factory in factories:
        with te.autocast(recipe=CustomRecipe(qfactory=factory)):
            module(torch.ones(32, IN, dtype=torch.bfloat16))
    return [factory.quantized["input"] for factory in dict.fromkeys(factories)]


@pytest.mark.upstream(
    "transformer-engine>=2.16,<2.18", reason="others do it on their own", control_only=True
)
@pytest.mark.control(STALE)
def test_a_module_takes_the_new_recipe() -> None:
    module = te.Linear(IN, OUT, bias=False, device="cpu", params_dtype=torch.bfloat16)
    assert inputs_quantized(module, ExactFactory(), ExactFactory()) == [1, 1], STALE


@pytest.mark.control(STALE)
def test_a_fused_operation_takes_the_new_recipe() -> None:
    operation = te.ops.BasicLinear(IN, OUT, device="cpu", dtype=torch.bfloat16)
    assert inputs_quantized(operation, ExactFactory(), ExactFactory()) == [1, 1], STALE


@pytest.mark.parametrize("kind", ["module", "operation"])
def test_an_equal_recipe_keeps_the_quantizers(kind: str) -> None:
    """A caller that makes its recipe anew in every step must not pay for it."""
    if kind == "module":
        net = te.Linear(IN, OUT, bias=False, device="cpu", params_dtype=torch.bfloat16)
    else:
        net = te.ops.BasicLinear(IN, OUT, device="cpu", dtype=torch.bfloat16)
    made, counts = [], []

    def counting(role: Any) -> Any:
        made.append(role)
        return ExactFactory()(role)

    for _ in range(2):
        with te.autocast(recipe=CustomRecipe(qfactory=counting)):
            net(torch.ones(32, IN, dtype=torch.bfloat16))
        counts.append(len(made))
    assert counts == [len(made)] * 2
    assert made
