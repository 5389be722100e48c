# SPDX-License-Identifier: Apache-2.0
"""A whole te.TransformerLayer under the MX recipes: quantized linears, attention in BF16."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
import transformer_engine.pytorch as te
from support import te_native
from support.te_exact import ExactFactory
from support.te_mx import data
from transformer_engine.common import recipe as te_recipe

from mxflux.te import census, check_census

SEQUENCE, BATCH, HIDDEN, HEADS, FFN = 16, 2, 64, 4, 128
#: qkv and proj of the attention, FC1 and FC2 of the MLP.
LINEARS = ("layernorm_qkv", "proj", "fc1", "fc2")


def layer() -> te.TransformerLayer:
    torch.manual_seed(0)
    return te.TransformerLayer(
        HIDDEN,
        FFN,
        HEADS,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        self_attn_mask_type="no_mask",
        device="cpu",
        params_dtype=torch.bfloat16,
    )


def gradients(module: te.TransformerLayer, recipe: Any) -> dict[str, torch.Tensor]:
    x = (data(SEQUENCE, BATCH, HIDDEN) / 8).requires_grad_()
    with te.autocast(recipe=recipe):
        y = module(x)
    y.backward(data(SEQUENCE, BATCH, HIDDEN, seed=1))
    return {"x": x.grad} | {n: p.grad.clone() for n, p in module.named_parameters()}


@pytest.mark.control("has no attribute 'MXFP[46]BlockScaling'")
@pytest.mark.parametrize("name", ["MXFP4BlockScaling", "MXFP6BlockScaling"])
def test_every_linear_runs_quantized_and_near_the_exact_gradients(name: str) -> None:
    recipe = getattr(te_recipe, name)(backend="emulated", dgrad_precision="mxfp8")
    module, exact = layer(), ExactFactory()
    with census(module) as opened:
        ours = gradients(module, recipe)
    check_census(opened, recipe)
    assert Counter(key[0].rsplit(".", 1)[-1] for key in opened.gemms) == dict.fromkeys(LINEARS, 3)
    assert te_native.CALLS["generic_gemm"] == 0
    theirs = gradients(layer(), te_recipe.CustomRecipe(qfactory=exact))
    assert exact.multiplied == dict.fromkeys(("FPROP", "DGRAD", "WGRAD"), len(LINEARS))
    bound = 0.5 if "4" in name else 0.15
    for parameter, gradient in ours.items():
        if parameter.endswith("key_bias"):
            continue  # zero but for rounding: softmax does not see a shift of all scores
        reference = theirs[parameter].double()
        error = (gradient.double() - reference).norm() / reference.norm()
        assert error < bound, f"{parameter}: {error:.3f}"


@pytest.mark.control("a direction was asked for and never packed|bgrad_quantize")
def test_a_layer_trains_under_any_custom_recipe() -> None:
    factory = ExactFactory()
    gradients(layer(), te_recipe.CustomRecipe(qfactory=factory))
    assert factory.multiplied == dict.fromkeys(("FPROP", "DGRAD", "WGRAD"), len(LINEARS))
