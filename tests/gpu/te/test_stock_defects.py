# SPDX-License-Identifier: Apache-2.0
"""What the patches of the custom GEMM mend, on compiled TE: with --control it fails on stock TE."""

from __future__ import annotations

import pytest
import torch
import transformer_engine.pytorch as te
from support.te_exact import ExactFactory
from torch.testing import assert_close
from transformer_engine.common.recipe import CustomRecipe

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]
TOKENS, IN, OUT = 64, 128, 96


def data(*shape: int, seed: int = 0) -> torch.Tensor:
    """bf16 normal values."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16().cuda()


@pytest.mark.control("Unexpected type for quantizer|bgrad_quantize")
def test_a_module_with_bias_trains_under_a_custom_recipe() -> None:
    module = te.Linear(IN, OUT, device="cuda", params_dtype=torch.bfloat16)
    x, dy = data(TOKENS, IN).requires_grad_(), data(TOKENS, OUT, seed=1)
    with te.autocast(recipe=CustomRecipe(qfactory=ExactFactory())):
        y = module(x)
    y.backward(dy)
    assert_close(module.bias.grad.double(), dy.double().sum(0), rtol=2.0**-8, atol=1e-2)


@pytest.mark.control("main_grad was never written")
def test_a_weight_gradient_reaches_main_grad() -> None:
    module = te.Linear(
        IN,
        OUT,
        bias=False,
        device="cuda",
        params_dtype=torch.bfloat16,
        fuse_wgrad_accumulation=True,
    )
    module.weight.main_grad = torch.zeros(OUT, IN, device="cuda")
    module.weight.grad_added_to_main_grad = False
    x, dy = data(TOKENS, IN).requires_grad_(), data(TOKENS, OUT, seed=1)
    with te.autocast(recipe=CustomRecipe(qfactory=ExactFactory())):
        y = module(x)
    y.backward(dy)
    assert module.weight.main_grad.count_nonzero(), "main_grad was never written"
    expected = dy.double().t() @ x.detach().double()
    assert_close(module.weight.main_grad.double(), expected, rtol=1e-5, atol=1e-4)
