# SPDX-License-Identifier: Apache-2.0
"""Patch 0007: a cached weight of a custom recipe is used only where it fits."""

from __future__ import annotations

import pytest
import torch
import transformer_engine.pytorch as te
from support.te_exact import ExactFactory
from torch.testing import assert_close
from transformer_engine.common.recipe import CustomRecipe

TOKENS, IN, OUT = 32, 64, 48


def data(*shape: int, seed: int = 0) -> torch.Tensor:
    """bf16 normal values."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def linear() -> te.Linear:
    return te.Linear(IN, OUT, bias=False, device="cpu", params_dtype=torch.bfloat16)


@pytest.mark.control("a direction was asked for and never packed")
def test_a_weight_cached_in_evaluation_is_packed_again_for_training() -> None:
    module, factory = linear(), ExactFactory()
    recipe, x, dy = CustomRecipe(qfactory=factory), data(TOKENS, IN), data(TOKENS, OUT, seed=1)
    with torch.no_grad(), te.autocast(recipe=recipe):
        module(x, is_first_microbatch=True)
    x.requires_grad_()
    with te.autocast(recipe=recipe):
        module(x, is_first_microbatch=False).backward(dy)
    assert_close(x.grad.double(), dy.double() @ module.weight.double(), rtol=2.0**-8, atol=1e-6)
    assert factory.quantized["weight"] == 2


@pytest.mark.control("the weight of the old recipe was used")
def test_a_weight_cached_under_another_recipe_is_packed_again() -> None:
    module, old, new = linear(), ExactFactory(), ExactFactory()
    x = data(TOKENS, IN)
    with te.autocast(recipe=CustomRecipe(qfactory=old)):
        module(x, is_first_microbatch=True)
    with te.autocast(recipe=CustomRecipe(qfactory=new)):
        module(x, is_first_microbatch=False)
    assert new.quantized["weight"] == 1, "the weight of the old recipe was used"


@pytest.mark.upstream("transformer-engine>=2.15", reason="the check is no function before")
@pytest.mark.control("called valid")
@pytest.mark.parametrize("missing", ["rowwise", "columnwise"])
def test_a_workspace_that_lacks_a_wanted_direction_is_not_valid(missing: str) -> None:
    from transformer_engine.pytorch.module.base import _is_weight_workspace_valid

    q = ExactFactory()(te.QuantizerRole(tensor_type="weight"))
    workspace = q(data(OUT, IN))
    assert _is_weight_workspace_valid(workspace, q)
    workspace.update_usage(**{f"{missing}_usage": False})
    assert not _is_weight_workspace_valid(workspace, q), "called valid"
    q.set_usage(**{missing: False})
    assert _is_weight_workspace_valid(workspace, q)


def test_a_fitting_cached_weight_is_used_again() -> None:
    module, factory = linear(), ExactFactory()
    recipe, dy = CustomRecipe(qfactory=factory), data(TOKENS, OUT, seed=1)
    for first in (True, False, False):
        x = data(TOKENS, IN).requires_grad_()
        with te.autocast(recipe=recipe):
            module(x, is_first_microbatch=first).backward(dy)
    assert factory.quantized == {"weight": 1, "input": 3, "grad_output": 3}


def test_the_next_first_micro_batch_takes_the_new_weight() -> None:
    module, recipe = linear(), CustomRecipe(qfactory=ExactFactory())
    x = data(TOKENS, IN)
    for scale in (1.0, 3.0):
        module.weight.data.fill_(scale)
        with te.autocast(recipe=recipe):
            y = module(x, is_first_microbatch=True)
        assert_close(
            y.double(),
            scale * x.double().sum(1, keepdim=True).expand(-1, OUT),
            rtol=2.0**-8,
            atol=1e-6,
        )
