# SPDX-License-Identifier: Apache-2.0
"""Patch 0006: modules that ran under the MX recipes save no pickle and load again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformer_engine.pytorch as te
from support.te_exact import ExactFactory
from torch.testing import assert_close
from transformer_engine.common import recipe as te_recipe

NAMES = ("MXFP4BlockScaling", "MXFP6BlockScaling")


def exact(role: Any = None) -> Any:
    """A qfactory that can be pickled, by name."""
    return ExactFactory()(role)


def recipe_named(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The tree's recipe; on a tree without it, a custom recipe in its place, like ROCm's."""
    if hasattr(te_recipe, name):
        return getattr(te_recipe, name)(backend="emulated")
    cls = type(name, (te_recipe.CustomRecipe,), {"__module__": te_recipe.__name__})
    monkeypatch.setattr(te_recipe, name, cls, raising=False)
    return cls(qfactory=exact)


def ran(recipe: Any) -> te.Linear:
    """A Linear after one forward under `recipe`."""
    torch.manual_seed(0)
    linear = te.Linear(64, 48, bias=False, device="cpu", params_dtype=torch.bfloat16)
    with te.autocast(recipe=recipe):
        linear(torch.ones(32, 64, dtype=torch.bfloat16))
    return linear


@pytest.mark.control("Refusing to load pickled|a pickle was written")
@pytest.mark.parametrize("name", NAMES)
def test_a_state_dict_holds_no_pickle_and_loads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_named(name, monkeypatch)
    state = ran(recipe).state_dict()
    other = ran(recipe)
    other.weight.data.zero_()
    other.load_state_dict(state)
    assert state["_extra_state"].numel() == 0, "a pickle was written"
    assert_close(other.weight, state["weight"], rtol=0, atol=0)


@pytest.mark.control("Refusing to load pickled|a pickle was written")
@pytest.mark.parametrize("name", NAMES)
def test_a_fused_operation_holds_no_pickle_either(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_named(name, monkeypatch)
    operation = te.ops.BasicLinear(64, 48, device="cpu", dtype=torch.bfloat16)
    with te.autocast(recipe=recipe):
        operation(torch.ones(32, 64, dtype=torch.bfloat16))
    state = operation.state_dict()
    operation.load_state_dict(state)
    sizes = {key: value.numel() for key, value in state.items() if key.endswith("_extra_state")}
    assert set(sizes.values()) == {0}, f"a pickle was written: {sizes}"
