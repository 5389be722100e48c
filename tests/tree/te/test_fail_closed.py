# SPDX-License-Identifier: Apache-2.0
"""What the MX recipes do not do is refused by name; nothing turns into BF16 on the way."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformer_engine.pytorch as te
from support import te_native
from support.te_exact import ExactFactory, ExactQuantizer, ExactStorage
from support.te_mx import data
from transformer_engine.common import recipe as te_recipe
from transformer_engine.pytorch.cpp_extensions import general_gemm
from transformer_engine.pytorch.custom_recipes.gemm import GEMMType

from mxflux.mx import MissingOperandError, MXValueError, PrecisionError
from mxflux.te import census, check_census

TOKENS, IN, OUT = 32, 64, 96
MISSING = "has no attribute 'MXFP4BlockScaling'"
BF16_ON_CPU = {"device": "cpu", "params_dtype": torch.bfloat16}


def mxfp4(**options: Any) -> Any:
    return te_recipe.MXFP4BlockScaling(**{"backend": "emulated", **options})


def linear(**options: Any) -> te.Linear:
    return te.Linear(IN, OUT, **BF16_ON_CPU, **options)


def quantizers(recipe: Any, **options: Any) -> dict[str, Any]:
    """The quantizers of a Linear that ran once under `recipe`."""
    module = linear(**options)
    with te.autocast(recipe=recipe):
        module(data(TOKENS, IN))
    inputs, weights, output = module.quantizers["scaling_fwd"]
    grad_output, grad_input = module.quantizers["scaling_bwd"]
    return {
        "input": inputs,
        "weight": weights,
        "output": output,
        "grad_output": grad_output,
        "grad_input": grad_input,
    }


class UnknownQuantizer(ExactQuantizer):
    """Its storage is neither one of TE's nor custom."""

    custom = False

    def quantize(self, tensor: torch.Tensor, **_: Any) -> ExactStorage:
        storage = ExactStorage(tensor, self)
        storage.custom = False
        storage.dequantize = lambda **_: tensor.detach()
        return storage


@pytest.mark.upstream(
    "transformer-engine>=2.19", reason="before, C++ refuses on its own", control_only=True
)
@pytest.mark.control("DID NOT RAISE")
def test_a_storage_that_te_does_not_know_reaches_no_gemm() -> None:
    """Patch 0009: from 2.19 on TE would multiply it in BF16."""
    factory, module = ExactFactory(), linear(bias=False)

    def unknown(_role: Any) -> UnknownQuantizer:
        return UnknownQuantizer("any", factory.quantized, factory.multiplied)

    with (
        pytest.raises(
            (RuntimeError, TypeError),
            match=r"(Unexpected operands|No GEMM multiplies) ExactStorage",
        ),
        te.autocast(recipe=te_recipe.CustomRecipe(qfactory=unknown)),
    ):
        module(data(TOKENS, IN))


@pytest.mark.control(MISSING)
def test_one_quantized_operand_alone_reaches_no_gemm() -> None:
    made = quantizers(mxfp4())
    with pytest.raises(TypeError, match="must be custom"):
        general_gemm(made["weight"](data(OUT, IN)), data(TOKENS, IN))
    assert te_native.CALLS["generic_gemm"] == 0


@pytest.mark.control(MISSING)
@pytest.mark.parametrize("slot", ["output", "grad_input"])
def test_a_boundary_slot_refuses_to_quantize(slot: str) -> None:
    with pytest.raises(NotImplementedError, match="fp8_output"):
        quantizers(mxfp4())[slot](data(TOKENS, OUT))


@pytest.mark.filterwarnings("ignore:.*output_quantizer_role:UserWarning")
@pytest.mark.control(MISSING)
def test_quantized_output_is_refused() -> None:
    module, recipe = linear(), mxfp4()
    with (
        pytest.raises(NotImplementedError, match="quantization_params"),
        te.autocast(recipe=recipe),
    ):
        module(data(TOKENS, IN), fp8_output=True)


@pytest.mark.control(MISSING)
def test_parameters_in_mx_are_refused() -> None:
    with (
        pytest.raises(NotImplementedError, match=r"quantized_model_init.*BF16"),
        te.quantized_model_init(recipe=mxfp4()),
    ):
        linear()


@pytest.mark.upstream(
    "transformer-engine>=2.16", reason="a qfactory is told the slot only before, C++ refuses"
)
@pytest.mark.control(MISSING)
def test_grouped_linear_is_refused_before_it_computes() -> None:
    module = te.GroupedLinear(2, IN, OUT, **BF16_ON_CPU)
    with pytest.raises(NotImplementedError, match="GroupedLinear"), te.autocast(recipe=mxfp4()):
        module(data(TOKENS, IN), [TOKENS // 2, TOKENS // 2])


@pytest.mark.upstream("transformer-engine>=2.16", reason="a qfactory is told the slot only before")
@pytest.mark.control(MISSING)
def test_attention_slots_are_filled_and_refuse() -> None:
    role = te.QuantizerRole(module_type="dpa", tensor_type="qkv", name="core")
    with pytest.raises(NotImplementedError, match="dpa core, slot 'qkv'"):
        mxfp4().qfactory(role)(data(TOKENS, IN))


@pytest.mark.control(MISSING)
@pytest.mark.parametrize("role", ["linear_input", "linear_weight", "linear_grad_output"])
def test_the_role_strings_of_older_releases_are_understood(role: str) -> None:
    made = mxfp4().qfactory(role)
    assert made.role == role.removeprefix("linear_")


@pytest.mark.control(MISSING)
def test_a_backward_after_a_forward_without_gradients_raises() -> None:
    made = quantizers(mxfp4())
    with torch.no_grad():
        made["input"].set_usage(rowwise=True, columnwise=False)
        packed = made["input"](data(TOKENS, IN))
    with pytest.raises(MissingOperandError, match="column pack"):
        packed.update_usage(columnwise_usage=True)
    packed.update_usage(rowwise_usage=False)
    with pytest.raises(MissingOperandError, match="row pack"):
        packed.update_usage(rowwise_usage=True)


@pytest.mark.control(MISSING)
@pytest.mark.parametrize(
    "other",
    [{"use_hadamard": True}, {"scale_mode": "floor"}, {"wgrad_precision": "bf16"}],
    ids=str,
)
def test_operands_packed_under_two_recipes_are_not_multiplied(other: dict[str, Any]) -> None:
    ours, theirs = quantizers(mxfp4()), quantizers(mxfp4(**other))
    for made in (ours["grad_output"], theirs["input"]):
        made.set_usage(rowwise=True, columnwise=True)
    dy, x = ours["grad_output"](data(TOKENS, OUT)), theirs["input"](data(TOKENS, IN))
    with pytest.raises(MXValueError, match=r"wgrad wants B as.*recipe changed"):
        general_gemm(x, dy, layout="NT", grad=True, out_dtype=torch.float32)


@pytest.mark.control(MISSING)
def test_a_shape_that_the_kernel_cannot_take_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mxflux.mx.backends.aiter_gemm.missing", lambda _device: None)
    module = linear(name="proj")
    # Up to TE 2.15 a quantizer has the name of its module in a census only.
    name = "proj" if hasattr(te, "QuantizerRole") else "<unnamed>"
    with (
        pytest.raises(RuntimeError, match=f"{name}, input, fprop: .*multiples of 16, got 8, 96"),
        te.autocast(recipe=mxfp4(backend="aiter")),
    ):
        module(data(8, IN).requires_grad_())


@pytest.mark.control(MISSING)
def test_the_census_finds_a_linear_that_ran_in_bf16() -> None:
    recipe = mxfp4()
    model = torch.nn.Sequential(linear(), te.Linear(OUT, IN, **BF16_ON_CPU))
    x, dy = data(TOKENS, IN).requires_grad_(), data(TOKENS, IN, seed=1)
    with census(model) as opened:
        with te.autocast(recipe=recipe):
            hidden = model[0](x)
        model[1](hidden).backward(dy)
    with pytest.raises(PrecisionError, match=r"1 \| dgrad \| e2m1 \| emulated: 0 instead of 1"):
        check_census(opened, recipe)


@pytest.mark.control(MISSING)
def test_the_census_finds_a_gemm_in_another_format() -> None:
    module, x, dy = linear(), data(TOKENS, IN).requires_grad_(), data(TOKENS, OUT, seed=1)
    with census(module) as opened:
        with te.autocast(recipe=mxfp4(wgrad_precision="bf16")):
            y = module(x)
        y.backward(dy)
    with pytest.raises(PrecisionError, match=r"wgrad \| bf16 \| torch: 1 instead of 0"):
        check_census(opened, mxfp4())


def test_a_census_of_a_model_without_te_linears_is_refused() -> None:
    with (
        pytest.raises(PrecisionError, match="no TransformerEngine linear"),
        census(torch.nn.Linear(4, 4)),
    ):
        pass


@pytest.mark.control(MISSING)
def test_quantizers_that_exist_take_the_names_of_the_census() -> None:
    model, recipe = torch.nn.ModuleDict({"late": linear()}), mxfp4()
    for _ in range(2):
        x, dy = data(TOKENS, IN).requires_grad_(), data(TOKENS, OUT, seed=1)
        with census(model) as opened:
            with te.autocast(recipe=recipe):
                y = model["late"](x)
            y.backward(dy)
        check_census(opened, recipe)
        assert {key[0] for key in opened.gemms} == {"late"}
        model = torch.nn.ModuleDict({"late": model["late"]})


def test_gemm_types_are_the_ones_that_the_plan_knows() -> None:
    assert [g.name.lower() for g in GEMMType] == ["fprop", "dgrad", "wgrad"]
