# SPDX-License-Identifier: Apache-2.0
"""Patch 0003: LayerNormMLP, and with it TransformerLayer, trains under a custom recipe."""

from __future__ import annotations

import pytest
import torch
import transformer_engine.pytorch as te
from support import te_native
from support.te_exact import ExactFactory, ExactQuantizer
from torch.testing import assert_close
from transformer_engine.common.recipe import CustomRecipe
from transformer_engine.pytorch.cpp_extensions import general_gemm

TOKENS, HIDDEN, FFN = 32, 64, 128


def data(*shape: int, seed: int = 0) -> torch.Tensor:
    """bf16 normal values."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def mlp(*, bias: bool = False, checkpoint: bool = False) -> te.LayerNormMLP:
    torch.manual_seed(0)
    return te.LayerNormMLP(
        HIDDEN, FFN, bias=bias, device="cpu", params_dtype=torch.bfloat16, checkpoint=checkpoint
    )


def reference(
    module: te.LayerNormMLP, x: torch.Tensor, dy: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The gradients of LayerNorm, FC1, GELU, FC2 by fp64 autograd."""
    p = {n: t.detach().double().requires_grad_() for n, t in module.named_parameters()}
    leaf = x.double().requires_grad_()
    norm = torch.nn.functional.layer_norm(
        leaf, (HIDDEN,), p["layer_norm_weight"], p["layer_norm_bias"], module.eps
    )
    fc1 = torch.nn.functional.linear(norm, p["fc1_weight"], p.get("fc1_bias"))
    act = torch.nn.functional.gelu(fc1, approximate="tanh")
    torch.nn.functional.linear(act, p["fc2_weight"], p.get("fc2_bias")).backward(dy.double())
    return {"x": leaf.grad} | {n: t.grad for n, t in p.items()}


@pytest.mark.control("a direction was asked for and never packed|bgrad_quantize")
@pytest.mark.parametrize(("bias", "checkpoint"), [(False, False), (True, False), (False, True)])
def test_every_gradient_matches_fp64_autograd(bias: bool, checkpoint: bool) -> None:
    module, factory = mlp(bias=bias, checkpoint=checkpoint), ExactFactory()
    x, dy = data(TOKENS, HIDDEN), data(TOKENS, HIDDEN, seed=1)
    leaf = x.clone().requires_grad_()
    with te.autocast(recipe=CustomRecipe(qfactory=factory)):
        module(leaf).backward(dy)
    assert te_native.CALLS["generic_gemm"] == 0
    # A checkpointed MLP computes FC1 again in the backward and skips FC2.
    assert factory.multiplied == {"FPROP": 2 + checkpoint, "DGRAD": 2, "WGRAD": 2}
    ours = {"x": leaf.grad} | {n: p.grad for n, p in module.named_parameters()}
    theirs = reference(module, x, dy)
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        error = (gradient.double() - theirs[name]).norm() / theirs[name].norm()
        assert error < 2.0**-7, f"{name}: relative error {error:.4f}"


@pytest.mark.control("assert .*FPROP")
def test_the_layout_decides_which_gemm_it_is() -> None:
    factory = ExactFactory()
    q = ExactQuantizer("any", factory.quantized, factory.multiplied)
    x, dy = data(TOKENS, HIDDEN), data(TOKENS, HIDDEN, seed=1)
    wgrad, *_ = general_gemm(q(x), q(dy), out_dtype=torch.float32, layout="NT", grad=False)
    assert factory.multiplied == {"WGRAD": 1}
    assert_close(wgrad.double(), dy.double().t() @ x.double(), rtol=1e-6, atol=1e-5)


def test_no_grad_packs_rows_only() -> None:
    module, factory = mlp(), ExactFactory()
    packed: list[tuple[str, bool, bool]] = []
    quantize = ExactQuantizer.quantize

    def recorded(self: ExactQuantizer, tensor: torch.Tensor, **options: object) -> object:
        packed.append((self.role, self.rowwise_usage, self.columnwise_usage))
        return quantize(self, tensor, **options)

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(ExactQuantizer, "quantize", recorded)
        with te.autocast(recipe=CustomRecipe(qfactory=factory)):
            module(data(TOKENS, HIDDEN))
    assert sorted(packed) == [("input", True, False)] * 2 + [("weight", True, False)] * 2
