# SPDX-License-Identifier: Apache-2.0
"""What a TE linear under an MX recipe makes of inputs at the edge: a defined result or an error."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformer_engine.pytorch as te
from support.te_mx import data
from transformer_engine.common import recipe as te_recipe

TOKENS, IN, OUT = 32, 64, 96
pytestmark = pytest.mark.control("has no attribute 'MXFP[46]BlockScaling'")


def linear(dtype: torch.dtype = torch.bfloat16) -> te.Linear:
    module = te.Linear(IN, OUT, device="cpu", params_dtype=dtype)
    module.weight.data.copy_(data(OUT, IN, seed=7))
    module.bias.data.copy_(data(OUT, seed=8))
    return module


def run(x: torch.Tensor, dy: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
    """Output and gradients of a fresh linear under MXFP6; dy None: of the sum of the output."""
    module, leaf = linear(x.dtype), x.detach().requires_grad_()
    with te.autocast(recipe=te_recipe.MXFP6BlockScaling(backend="emulated")):
        y = module(leaf)
    if dy is None:
        y.sum().backward()
    else:
        y.backward(dy)
    return y.detach(), leaf.grad, module.weight.grad, module.bias.grad


def assert_same(some: Any, others: Any) -> None:
    for one, other in zip(some, others, strict=True):
        assert torch.equal(one, other)


def test_strided_inputs_equal_their_contiguous_copies() -> None:
    wide = data(2 * TOKENS, 2 * IN)
    dy = data(TOKENS, OUT, seed=1)
    for x in (wide[::2, :IN], wide[:TOKENS, ::2], wide[:IN, :TOKENS].t()):
        assert not x.is_contiguous()
        assert_same(run(x, dy), run(x.contiguous(), dy))


def test_an_expanded_gradient_equals_its_contiguous_copy() -> None:
    x, ones = data(TOKENS, IN), torch.ones(TOKENS, OUT, dtype=torch.bfloat16)
    assert_same(run(x), run(x, ones))
    assert_same(run(x, ones[:, :1].expand(TOKENS, OUT)), run(x, ones))


def test_no_tokens_give_no_output_and_zero_gradients() -> None:
    y, dx, dw, db = run(torch.empty(0, IN, dtype=torch.bfloat16))
    assert y.shape == (0, OUT)
    assert dx.shape == (0, IN)
    assert not dw.any()
    assert not db.any()


def test_a_nan_token_spoils_its_own_outputs_and_no_others() -> None:
    x = data(TOKENS, IN)
    clean = run(x)[0]
    x[3, 5] = float("nan")
    y = run(x)[0]
    assert y[3].isnan().all()
    kept = [token for token in range(TOKENS) if token != 3]
    assert torch.equal(y[kept], clean[kept])


def test_fp64_is_refused_and_the_layer_named() -> None:
    with pytest.raises(ValueError, match=r"input, quantize: .*float32, got torch\.float64"):
        run(data(TOKENS, IN).double())
