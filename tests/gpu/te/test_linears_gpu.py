# SPDX-License-Identifier: Apache-2.0
"""TE's linears on a GPU under the MX recipes, against mxflux.mx's reference in fp64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformer_engine.pytorch as te
from support.te_mx import Numerics, data, packed
from torch.testing import assert_close
from transformer_engine.common import recipe as te_recipe

from mxflux.te import census, check_census

if TYPE_CHECKING:
    from collections import Counter

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]
TOKENS, IN, OUT = 160, 192, 256
#: Half a step of bf16, and the error of fp32 sums of this length, in any order.
BF16 = {"rtol": 2.0**-7, "atol": 2e-2}
BF16_LINEAR = {"device": "cuda", "params_dtype": torch.bfloat16}

CASES: dict[str, tuple[str, dict[str, Any], Numerics]] = {
    "mxfp4": ("MXFP4BlockScaling", {}, Numerics("e2m1", "e2m1", "e2m1", "even")),
    "mxfp4-triton": (
        "MXFP4BlockScaling",
        {"backend": "triton", "use_hadamard": True},
        Numerics("e2m1", "e2m1", "e2m1", "even", rotate=True),
    ),
    "mxfp4-triton-mxfp8-backward": (
        "MXFP4BlockScaling",
        {"backend": "triton", "dgrad_precision": "mxfp8_e5m2", "wgrad_precision": "mxfp8"},
        Numerics("e2m1", "e5m2", "e4m3", "even"),
    ),
    "mxfp4-bf16-wgrad": (
        "MXFP4BlockScaling",
        {"wgrad_precision": "bf16"},
        Numerics("e2m1", "e2m1", "bf16", "even"),
    ),
    "mxfp6": ("MXFP6BlockScaling", {}, Numerics("e2m3", "e2m3", "e2m3", "floor")),
    "mxfp6-hadamard-e3m2": (
        "MXFP6BlockScaling",
        {"use_hadamard": True, "fp6_format": "E3M2"},
        Numerics("e3m2", "e3m2", "e3m2", "floor", rotate=True),
    ),
}


def recipe_of(case: str, **options: Any) -> Any:
    name, chosen, _ = CASES[case]
    return getattr(te_recipe, name)(**{"backend": "emulated", **chosen, **options})


def values(*shape: int, seed: int = 0) -> torch.Tensor:
    return data(*shape, seed=seed).cuda()


def linear(**options: Any) -> te.Linear:
    """A bf16 Linear with spread-out weights and a bias."""
    module = te.Linear(IN, OUT, **BF16_LINEAR, **options)
    module.weight.data.copy_(values(OUT, IN, seed=7))
    if module.use_bias:
        module.bias.data.copy_(values(OUT, seed=8))
    return module


def run(module: Any, recipe: Any, x: torch.Tensor, dy: torch.Tensor, **options: Any) -> Any:
    with te.autocast(recipe=recipe):
        y = module(x, **options)
    (y if isinstance(y, torch.Tensor) else y[0]).backward(dy)
    return y


@pytest.mark.parametrize("shape", [(TOKENS, IN), (2, 40, IN)], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_linear_matches_fp64(case: str, shape: tuple[int, ...], native_gemms: Counter[str]) -> None:
    module, recipe = linear(), recipe_of(case)
    x, dy = values(*shape).requires_grad_(), values(*shape[:-1], OUT, seed=1)
    with census(module) as opened:
        y = run(module, recipe, x, dy)
    flat_x, flat_dy = x.detach().reshape(-1, IN), dy.reshape(-1, OUT)
    expected_y, expected_dx, expected_dw = CASES[case][2].linear(
        flat_x, module.weight.detach(), module.bias.detach(), flat_dy
    )
    assert_close(y.double(), expected_y.reshape(dy.shape), **BF16)
    assert_close(x.grad.double(), expected_dx.reshape(shape), **BF16)
    assert_close(module.weight.grad.double(), expected_dw, **BF16)
    assert_close(module.bias.grad.double(), flat_dy.double().sum(0), rtol=2.0**-7, atol=1.0)
    check_census(opened, recipe)
    assert {key[3] for key in opened.quantizations} == {"triton"}
    assert native_gemms["generic_gemm"] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", ["mxfp4-triton", "mxfp4-bf16-wgrad", "mxfp6"])
def test_main_grad_is_overwritten_then_added_to(case: str, dtype: torch.dtype) -> None:
    module, recipe = linear(fuse_wgrad_accumulation=True, bias=False), recipe_of(case)
    module.weight.main_grad = torch.full((OUT, IN), 1e6, dtype=dtype, device="cuda")
    module.weight.grad_added_to_main_grad = False
    before = torch.zeros(OUT, IN, dtype=torch.float64, device="cuda")
    for seed, first in enumerate((True, False)):
        x, dy = values(TOKENS, IN, seed=seed).requires_grad_(), values(TOKENS, OUT, seed=10 + seed)
        run(module, recipe, x, dy, is_first_microbatch=first)
        expected = before + CASES[case][2].linear(x.detach(), module.weight, None, dy)[2]
        written = module.weight.main_grad.double()
        rtol = 1.01 * 2.0**-8 if dtype is torch.bfloat16 else 1e-5
        assert_close(written, expected, rtol=rtol, atol=0.1)
        before = written
    assert module.weight.grad_added_to_main_grad


@pytest.mark.parametrize("normalization", ["LayerNorm", "RMSNorm"])
@pytest.mark.parametrize("case", ["mxfp4-triton", "mxfp6"])
def test_layernorm_linear_quantizes_the_norm_s_output(
    case: str, normalization: str, native_gemms: Counter[str]
) -> None:
    module = te.LayerNormLinear(
        IN, OUT, normalization=normalization, return_layernorm_output=True, **BF16_LINEAR
    )
    recipe, x = recipe_of(case), values(TOKENS, IN).requires_grad_()
    dy = values(TOKENS, OUT, seed=1)
    with census(module) as opened:
        y, norm = run(module, recipe, x, dy)
    expected_y, _, expected_dw = CASES[case][2].linear(
        norm.detach(), module.weight.detach(), module.bias, dy
    )
    assert_close(y.double(), expected_y, **BF16)
    assert_close(module.weight.grad.double(), expected_dw, **BF16)
    assert_close(module.bias.grad.double(), dy.double().sum(0), rtol=2.0**-7, atol=1.0)
    assert bool(x.grad.isfinite().all())
    assert x.grad.count_nonzero() > x.numel() // 2
    check_census(opened, recipe)
    assert native_gemms["generic_gemm"] == 0


def test_no_grad_packs_rows_only() -> None:
    module, recipe = linear(), recipe_of("mxfp4-triton")
    with census(module) as opened, torch.no_grad(), te.autocast(recipe=recipe):
        module(values(TOKENS, IN))
    assert {key[1] for key in opened.quantizations} == {"input:row", "weight:row"}
    check_census(opened, recipe, directions=("fprop",))


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_activation_checkpointing_gives_the_same_gradients(use_reentrant: bool) -> None:
    recipe, gradients = recipe_of("mxfp6"), []
    for checkpointed in (False, True):
        module = linear()
        x, dy = values(TOKENS, IN).requires_grad_(), values(TOKENS, OUT, seed=1)
        with te.autocast(recipe=recipe):
            y = te.checkpoint(module, x, use_reentrant=use_reentrant) if checkpointed else module(x)
        y.backward(dy)
        gradients.append((x.grad, module.weight.grad, module.bias.grad))
    for plain, recomputed in zip(*gradients, strict=True):
        assert torch.equal(plain, recomputed)


@pytest.mark.parametrize("case", ["mxfp4", "mxfp6"])
def test_a_state_dict_holds_no_pickle_and_loads(case: str) -> None:
    module, other, recipe = linear(), linear(), recipe_of(case)
    x, dy = values(TOKENS, IN).requires_grad_(), values(TOKENS, OUT, seed=1)
    y = run(module, recipe, x, dy)
    other.weight.data.zero_()
    state = module.state_dict()
    assert state["_extra_state"].numel() == 0
    other.load_state_dict(state)
    assert torch.equal(run(other, recipe, x, dy), y)


def test_stochastic_rounding_is_unbiased_and_repeats_by_seed() -> None:
    x, dy = values(TOKENS, IN), values(TOKENS, OUT, seed=1)

    def gradient(seed: int) -> torch.Tensor:
        module, leaf = linear(), x.clone().requires_grad_()
        torch.manual_seed(seed)
        run(module, recipe_of("mxfp4", scale_mode="ceil", stochastic_rounding=True), leaf, dy)
        return leaf.grad.double()

    draws = [gradient(seed) for seed in range(32)]
    assert torch.equal(draws[3], gradient(3))
    weight = packed(linear().weight.detach().t(), "e2m1", "ceil").t()[:OUT]
    expected = dy.double() @ weight
    mean, single = torch.stack(draws).mean(0), draws[0]
    error, one = ((t - expected).norm() / expected.norm() for t in (mean, single))
    assert error < one / 3, f"{error} of 32 draws, {one} of one"
