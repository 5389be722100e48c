# SPDX-License-Identifier: Apache-2.0
"""te.Linear and te.LayerNormLinear under the MX recipes, against mxflux.mx's reference in fp64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformer_engine.pytorch as te
from support import te_native
from support.te_mx import Numerics, data
from torch.testing import assert_close
from transformer_engine.common import recipe as te_recipe

from mxflux.te import census, check_census

TOKENS, IN, OUT = 32, 64, 96
#: Half a step of bf16, and the error of fp32 sums of this length.
BF16 = {"rtol": 2.0**-8, "atol": 1e-4}
MISSING = "has no attribute 'MXFP[46]BlockScaling'"

CASES: dict[str, tuple[str, dict[str, Any], Numerics]] = {
    "mxfp4": ("MXFP4BlockScaling", {}, Numerics("e2m1", "e2m1", "e2m1", "even")),
    "mxfp4-hadamard": (
        "MXFP4BlockScaling",
        {"use_hadamard": True},
        Numerics("e2m1", "e2m1", "e2m1", "even", rotate=True),
    ),
    "mxfp4-block-2d": (
        "MXFP4BlockScaling",
        {"weight_block_2d": True, "scale_mode": "floor"},
        Numerics("e2m1", "e2m1", "e2m1", "floor", weight_block_2d=True),
    ),
    "mxfp4-bf16-wgrad": (
        "MXFP4BlockScaling",
        {"wgrad_precision": "bf16", "use_hadamard": True},
        Numerics("e2m1", "e2m1", "bf16", "even", rotate=True),
    ),
    "mxfp4-mxfp8-backward": (
        "MXFP4BlockScaling",
        {"dgrad_precision": "mxfp8_e5m2", "wgrad_precision": "mxfp8", "use_hadamard": True},
        Numerics("e2m1", "e5m2", "e4m3", "even", rotate=True),
    ),
    "mxfp4-bf16-backward": (
        "MXFP4BlockScaling",
        {"dgrad_precision": "bf16", "wgrad_precision": "bf16"},
        Numerics("e2m1", "bf16", "bf16", "even"),
    ),
    "mxfp6": ("MXFP6BlockScaling", {}, Numerics("e2m3", "e2m3", "e2m3", "floor")),
    "mxfp6-hadamard": (
        "MXFP6BlockScaling",
        {"use_hadamard": True, "scale_mode": "rceil"},
        Numerics("e2m3", "e2m3", "e2m3", "rceil", rotate=True),
    ),
    "mxfp6-e3m2": (
        "MXFP6BlockScaling",
        {"fp6_format": "E3M2", "dgrad_precision": "mxfp4"},
        Numerics("e3m2", "e2m1", "e3m2", "floor"),
    ),
}


def recipe_of(case: str, **options: Any) -> Any:
    name, chosen, _ = CASES[case]
    return getattr(te_recipe, name)(**{"backend": "emulated", **chosen, **options})


def linear(in_features: int = IN, out_features: int = OUT, **options: Any) -> te.Linear:
    """A bf16 Linear with spread-out weights and a bias."""
    module = te.Linear(
        in_features, out_features, device="cpu", params_dtype=torch.bfloat16, **options
    )
    module.weight.data.copy_(data(out_features, in_features, seed=7))
    if module.use_bias:
        module.bias.data.copy_(data(out_features, seed=8))
    return module


def run(
    module: te.Linear, recipe: Any, x: torch.Tensor, dy: torch.Tensor, **options: Any
) -> torch.Tensor:
    with te.autocast(recipe=recipe):
        y = module(x, **options)
    y.backward(dy)
    return y


@pytest.mark.control(MISSING)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("shape", "out"), [((TOKENS, IN), OUT), ((2, 20, 80), 48), ((8, 48), 16)], ids=str
)
def test_linear_matches_fp64_autograd_of_the_dequantized_operands(
    case: str, shape: tuple[int, ...], out: int
) -> None:
    module, recipe = linear(shape[-1], out), recipe_of(case)
    x, dy = data(*shape).requires_grad_(), data(*shape[:-1], out, seed=1)
    with census(module) as opened:
        y = run(module, recipe, x, dy)
    flat_x, flat_dy = x.detach().reshape(-1, shape[-1]), dy.reshape(-1, out)
    expected_y, expected_dx, expected_dw = CASES[case][2].linear(
        flat_x, module.weight.detach(), module.bias.detach(), flat_dy
    )
    assert_close(y.double(), expected_y.reshape(dy.shape), **BF16)
    assert_close(x.grad.double(), expected_dx.reshape(shape), **BF16)
    assert_close(module.weight.grad.double(), expected_dw, **BF16)
    assert_close(module.bias.grad.double(), flat_dy.double().sum(0), rtol=2.0**-7, atol=0.1)
    check_census(opened, recipe)
    assert te_native.CALLS["generic_gemm"] == 0


@pytest.mark.control(MISSING)
@pytest.mark.parametrize("case", ["mxfp4", "mxfp4-bf16-wgrad", "mxfp6-hadamard"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_main_grad_is_overwritten_then_added_to_with_one_rounding(
    case: str, dtype: torch.dtype
) -> None:
    module, recipe = linear(fuse_wgrad_accumulation=True, bias=False), recipe_of(case)
    module.weight.main_grad = torch.full((OUT, IN), 1e6, dtype=dtype)
    module.weight.grad_added_to_main_grad = False
    before = torch.zeros(OUT, IN, dtype=torch.float64)
    for seed, first in enumerate((True, False)):
        x, dy = data(TOKENS, IN, seed=seed).requires_grad_(), data(TOKENS, OUT, seed=10 + seed)
        run(module, recipe, x, dy, is_first_microbatch=first)
        expected = before + CASES[case][2].linear(x.detach(), module.weight, None, dy)[2]
        written = module.weight.main_grad.double()
        # One rounding is half a step of the sum, however large the two terms are.
        rtol = 1.01 * 2.0**-8 if dtype is torch.bfloat16 else 1e-6
        assert_close(written, expected, rtol=rtol, atol=1e-2)
        before = written
    assert module.weight.grad_added_to_main_grad


@pytest.mark.control(MISSING)
def test_layernorm_linear_quantizes_the_norm_s_output() -> None:
    module = te.LayerNormLinear(IN, OUT, device="cpu", params_dtype=torch.bfloat16)
    recipe, x, dy = recipe_of("mxfp4"), data(TOKENS, IN).requires_grad_(), data(TOKENS, OUT, seed=1)
    with census(module) as opened:
        y = run(module, recipe, x, dy)
    norm = torch.nn.functional.layer_norm(x.detach().float(), (IN,), eps=module.eps).bfloat16()
    numerics = CASES["mxfp4"][2]
    expected_y, _, expected_dw = numerics.linear(norm, module.weight.detach(), module.bias, dy)
    assert_close(y.double(), expected_y, **BF16)
    assert_close(module.weight.grad.double(), expected_dw, **BF16)
    check_census(opened, recipe)


@pytest.mark.control(MISSING)
def test_no_grad_packs_rows_only() -> None:
    module, recipe = linear(), recipe_of("mxfp4")
    with census(module) as opened, torch.no_grad(), te.autocast(recipe=recipe):
        module(data(TOKENS, IN))
    assert {key[1] for key in opened.quantizations} == {"input:row", "weight:row"}
    check_census(opened, recipe, directions=("fprop",))


@pytest.mark.control(MISSING)
def test_an_input_without_gradient_costs_no_dgrad_and_no_weight_columns() -> None:
    module, recipe = linear(), recipe_of("mxfp4")
    with census(module) as opened:
        run(module, recipe, data(TOKENS, IN), data(TOKENS, OUT, seed=1))
    assert {key[1] for key in opened.gemms} == {"fprop", "wgrad"}
    assert ("model", "weight:row", "e2m1", "reference") in opened.quantizations


@pytest.mark.control(MISSING)
def test_a_frozen_weight_costs_no_wgrad_and_no_input_columns() -> None:
    module, recipe = linear(), recipe_of("mxfp4")
    module.weight.requires_grad_(False)
    with census(module) as opened:
        run(module, recipe, data(TOKENS, IN).requires_grad_(), data(TOKENS, OUT, seed=1))
    assert {key[1] for key in opened.gemms} == {"fprop", "dgrad"}
    assert ("model", "input:row", "e2m1", "reference") in opened.quantizations


@pytest.mark.control(MISSING)
@pytest.mark.parametrize("cached", [False, True])
def test_two_micro_batches_in_flight_do_not_disturb_each_other(cached: bool) -> None:
    module, recipe = linear(bias=False), recipe_of("mxfp4")
    batches = [
        (data(TOKENS, IN, seed=s).requires_grad_(), data(TOKENS, OUT, seed=10 + s)) for s in (0, 1)
    ]
    outputs = []
    for number, (x, _) in enumerate(batches):
        with te.autocast(recipe=recipe):
            outputs.append(module(x, is_first_microbatch=(number == 0) if cached else None))
    for y, (_, dy) in zip(outputs, batches, strict=True):
        y.backward(dy)
    total = torch.zeros(OUT, IN, dtype=torch.float64)
    for x, dy in batches:
        _, dx, dw = CASES["mxfp4"][2].linear(x.detach(), module.weight.detach(), None, dy)
        assert_close(x.grad.double(), dx, **BF16)
        total += dw
    assert_close(module.weight.grad.double(), total, rtol=2.0**-7, atol=2.0)


@pytest.mark.control(MISSING)
def test_a_weight_is_packed_once_for_the_micro_batches_of_a_step() -> None:
    module, recipe = linear(bias=False), recipe_of("mxfp4")
    with census(module) as opened:
        for _ in range(2):
            module.weight.data.mul_(1.5)
            for first in (True, False, False):
                x, dy = data(TOKENS, IN).requires_grad_(), data(TOKENS, OUT, seed=1)
                y = run(module, recipe, x, dy, is_first_microbatch=first)
                expected = CASES["mxfp4"][2].linear(x.detach(), module.weight.detach(), None, dy)
                assert_close(y.double(), expected[0], **BF16)
                assert_close(x.grad.double(), expected[1], **BF16)
    weights = {key: n for key, n in opened.quantizations.items() if key[1].startswith("weight")}
    assert weights == {("model", "weight:dual", "e2m1", "reference"): 2}


@pytest.mark.control(MISSING)
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_activation_checkpointing_gives_the_same_gradients(use_reentrant: bool) -> None:
    recipe, gradients = recipe_of("mxfp4"), []
    for checkpointed in (False, True):
        module = linear()
        x, dy = data(TOKENS, IN).requires_grad_(), data(TOKENS, OUT, seed=1)
        with census(module) as opened:
            with te.autocast(recipe=recipe):
                y = (
                    te.checkpoint(module, x, use_reentrant=use_reentrant)
                    if checkpointed
                    else module(x)
                )
            y.backward(dy)
        counts = {key[1]: n for key, n in opened.gemms.items()}
        assert counts == {"fprop": 1 + checkpointed, "dgrad": 1, "wgrad": 1}
        gradients.append((x.grad, module.weight.grad, module.bias.grad))
    for plain, recomputed in zip(*gradients, strict=True):
        assert_close(plain, recomputed, rtol=0, atol=0)


@pytest.mark.upstream("transformer-engine>=2.15", reason="no backward_override before")
@pytest.mark.control(MISSING)
@pytest.mark.parametrize("override", ["high_precision", "dequantized"])
def test_backward_override_leaves_the_backward_to_te(override: str) -> None:
    module, recipe = linear(), recipe_of("mxfp4", backward_override=override)
    x, dy = data(TOKENS, IN).requires_grad_(), data(TOKENS, OUT, seed=1)
    with census(module) as opened:
        run(module, recipe, x, dy)
    check_census(opened, recipe)
    assert te_native.CALLS["generic_gemm"] == 2
    kept, weight = x.detach(), module.weight.detach()
    if override == "dequantized":
        kept, weight = (packed_bf16(t) for t in (kept, weight))
    assert_close(x.grad.double(), dy.double() @ weight.double(), **BF16)
    assert_close(module.weight.grad.double(), dy.double().t() @ kept.double(), **BF16)


def packed_bf16(x: torch.Tensor) -> torch.Tensor:
    """x after quantization along its rows, as the dequantized backward sees it."""
    from support.te_mx import packed

    return packed(x, "e2m1", "even").bfloat16()


@pytest.mark.control(MISSING)
def test_save_original_input_packs_it_again_in_the_backward() -> None:
    module, recipe = linear(save_original_input=True), recipe_of("mxfp4")
    x, dy = data(TOKENS, IN).requires_grad_(), data(TOKENS, OUT, seed=1)
    with census(module) as opened:
        run(module, recipe, x, dy)
    _, dx, dw = CASES["mxfp4"][2].linear(x.detach(), module.weight.detach(), module.bias, dy)
    assert_close(x.grad.double(), dx, **BF16)
    assert_close(module.weight.grad.double(), dw, **BF16)
    check_census(opened, recipe)


@pytest.mark.control(MISSING)
def test_stochastic_rounding_touches_gradients_only_and_follows_the_seed() -> None:
    x, dy = data(TOKENS, IN), data(TOKENS, OUT, seed=1)

    def once(seed: int, **options: Any) -> tuple[torch.Tensor, ...]:
        module, leaf = linear(), x.clone().requires_grad_()
        torch.manual_seed(seed)
        y = run(module, recipe_of("mxfp4", scale_mode="ceil", **options), leaf, dy)
        return y.detach(), leaf.grad, module.weight.grad

    # CEIL never clips, and what is never clipped averages out.
    nearest, first = once(0), once(1, stochastic_rounding=True)
    assert torch.equal(nearest[0], first[0])
    assert all(
        torch.equal(a, b) for a, b in zip(first, once(1, stochastic_rounding=True), strict=True)
    )
    for index in (1, 2):
        assert not torch.equal(first[index], nearest[index])
        assert not torch.equal(first[index], once(2, stochastic_rounding=True)[index])
    mean = sum(once(s, stochastic_rounding=True)[1].double() for s in range(32)) / 32
    exact = dy.double() @ packed_columns(linear().weight.detach())
    error, single = ((t.double() - exact).norm() / exact.norm() for t in (mean, first[1]))
    assert error < single / 3, "rounding up and down do not cancel"


def packed_columns(w: torch.Tensor) -> torch.Tensor:
    """w (N, K) after quantization along its columns, as dgrad sees it."""
    from support.te_mx import packed

    return packed(w.t(), "e2m1", "ceil").t()[: w.shape[0]]
