# SPDX-License-Identifier: Apache-2.0
"""Patch 0002: a module with a bias trains under a custom recipe."""

from __future__ import annotations

import pytest
import torch
import transformer_engine.pytorch as te
from support import te_native
from support.te_exact import ExactFactory
from torch.testing import assert_close
from transformer_engine.common.recipe import CustomRecipe

TOKENS, IN, OUT = 32, 64, 48
BF16 = {"rtol": 2.0**-8, "atol": 1e-6}


def data(*shape: int, seed: int = 0) -> torch.Tensor:
    """bf16 normal values."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def linear(*, bias: bool = True) -> te.Linear:
    module = te.Linear(IN, OUT, bias=bias, device="cpu", params_dtype=torch.bfloat16)
    if bias:
        module.bias.data.copy_(data(OUT, seed=9))
    return module


@pytest.mark.control("bgrad_quantize")
@pytest.mark.parametrize("shape", [(TOKENS, IN), (4, TOKENS // 4, IN)])
def test_linear_with_bias_matches_fp64_autograd(shape: tuple[int, ...]) -> None:
    module, factory = linear(), ExactFactory()
    x = data(*shape).requires_grad_()
    dy = data(*shape[:-1], OUT, seed=2)
    with te.autocast(recipe=CustomRecipe(qfactory=factory)):
        y = module(x)
    y.backward(dy)

    exact = [t.detach().double().requires_grad_() for t in (x, module.weight, module.bias)]
    reference = torch.nn.functional.linear(*exact)
    reference.backward(dy.double())
    assert_close(y.double(), reference, **BF16)
    for name, ours, theirs in zip("xwb", (x, module.weight, module.bias), exact, strict=True):
        assert_close(ours.grad.double(), theirs.grad, msg=lambda m, n=name: f"d{n}: {m}", **BF16)
    assert factory.quantized == {"input": 1, "weight": 1, "grad_output": 1}
    assert factory.multiplied == {"FPROP": 1, "DGRAD": 1, "WGRAD": 1}
    assert te_native.CALLS["generic_gemm"] == 0


@pytest.mark.control("bgrad_quantize")
def test_a_frozen_weight_still_gives_the_bias_its_gradient() -> None:
    module, factory = linear(), ExactFactory()
    module.weight.requires_grad_(False)
    x, dy = data(TOKENS, IN).requires_grad_(), data(TOKENS, OUT, seed=2)
    with te.autocast(recipe=CustomRecipe(qfactory=factory)):
        module(x).backward(dy)
    assert_close(module.bias.grad.double(), dy.double().sum(0), **BF16)
    assert factory.multiplied == {"FPROP": 1, "DGRAD": 1}


@pytest.mark.control("bgrad_quantize")
@pytest.mark.parametrize("normalization", ["LayerNorm", "RMSNorm"])
def test_layernorm_linear_with_bias_matches_its_bf16_path(normalization: str) -> None:
    options = {"normalization": normalization, "device": "cpu", "params_dtype": torch.bfloat16}
    module, factory = te.LayerNormLinear(IN, OUT, **options), ExactFactory()
    x, dy = data(TOKENS, IN), data(TOKENS, OUT, seed=2)

    def gradients(recipe: CustomRecipe | None) -> dict[str, torch.Tensor]:
        module.zero_grad()
        leaf = x.clone().requires_grad_()
        with te.autocast(enabled=recipe is not None, recipe=recipe):
            module(leaf).backward(dy)
        return {"x": leaf.grad} | {n: p.grad.clone() for n, p in module.named_parameters()}

    custom, native = gradients(CustomRecipe(qfactory=factory)), gradients(None)
    assert custom.keys() == native.keys()
    for name, gradient in custom.items():
        assert_close(
            gradient, native[name], rtol=2.0**-7, atol=2.0**-6, msg=lambda m, n=name: f"{n}: {m}"
        )
    assert factory.multiplied == {"FPROP": 1, "DGRAD": 1, "WGRAD": 1}
    assert te_native.CALLS["generic_gemm"] == 3, "the BF16 run only"


def test_linear_without_bias_needs_no_patch() -> None:
    module, factory = linear(bias=False), ExactFactory()
    x, dy = data(TOKENS, IN).requires_grad_(), data(TOKENS, OUT, seed=2)
    with te.autocast(recipe=CustomRecipe(qfactory=factory)):
        module(x).backward(dy)
    assert_close(module.weight.grad.double(), dy.double().t() @ x.detach().double(), **BF16)
