# SPDX-License-Identifier: Apache-2.0
"""Megatron's local linears in MX formats, with real Megatron modules on the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Megatron warns about the packages that are absent here
    from megatron.core.tensor_parallel import ColumnParallelLinear
    from megatron.core.transformer.transformer_config import TransformerConfig

    from mxflux.mx.megatron_linear import linear_types, local_linear_provider, plan_for

from mxflux.mx import MXUnavailableError, MXValueError, census
from mxflux.mx.high import LABELS
from mxflux.mx.linear import mx_linear
from mxflux.mx.plans import mxfp4, mxfp6


@pytest.fixture(scope="module", autouse=True)
def _one_rank() -> Iterator[None]:
    """A process group of one rank: row-parallel linears reduce over it."""
    started = not torch.distributed.is_initialized()
    if started:
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    if started:
        torch.distributed.destroy_process_group()


def config(**changes: Any) -> TransformerConfig:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = TransformerConfig(
            num_layers=1,
            hidden_size=64,
            num_attention_heads=2,
            use_cpu_initialization=True,
            params_dtype=torch.bfloat16,
            gradient_accumulation_fusion=False,
        )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def linear(kind: int, plan: Any = None, **changes: Any) -> Any:
    built = linear_types(plan or mxfp6())[kind]
    extra = {} if kind == 0 else {"input_is_parallel": True, "bias": True, "skip_bias_add": False}
    return built(
        64,
        96,
        config=config(**changes),
        init_method=torch.nn.init.xavier_uniform_,
        tp_group=torch.distributed.group.WORLD,
        **extra,
    )


@pytest.mark.parametrize("kind", [0, 1], ids=["column", "row"])
def test_equals_mx_linear_and_counts_three_gemms(kind: int) -> None:
    layer = linear(kind)
    torch.nn.init.normal_(layer.bias)
    x = torch.randn(6, 2, 64, dtype=torch.bfloat16, requires_grad=True)
    with census(layer) as counted:
        y, bias = layer(x)
        y.float().sum().backward()
    assert bias is None
    counted.check(directions=("fprop", "dgrad", "wgrad"), formats=("e2m3",))
    expected = mx_linear(x, layer.weight, layer.bias if kind == 0 else None, mxfp6())
    assert y.equal(expected if kind == 0 else expected + layer.bias)
    assert layer.weight.grad is not None


@pytest.mark.parametrize(
    ("fields", "options", "formats"),
    [
        ({"fp4": "e2m1", "fp4_recipe": "mxfp4"}, {}, ("e2m1", "e2m1", "e2m1")),
        ({"fp4": "e2m1", "fp4_recipe": "mxfp4"}, {"backward": "bf16"}, ("e2m1", "bf16", "bf16")),
        ({"fp6": "e3m2"}, {"backward": "fp8"}, ("e3m2", LABELS["fp8"], LABELS["fp8"])),
        ({"fp8": "e4m3", "fp8_recipe": "mxfp8"}, {}, ("e4m3", "e4m3", "e4m3")),
        (
            {"fp8": "e4m3", "fp8_recipe": "mxfp8"},
            {"gradient": "e5m2"},
            ("e4m3", "e5m2/e4m3", "e5m2/e4m3"),
        ),
    ],
)
def test_each_format_of_a_config_runs_in_every_direction(
    fields: dict[str, Any], options: dict[str, Any], formats: tuple[str, str, str]
) -> None:
    asked = config(**{"fp8": None, "fp4": None, "fp6": None} | fields)
    column, _ = local_linear_provider("emulated", **options)(asked)
    layer = linear(0, column.plan)
    x = torch.randn(6, 2, 64, dtype=torch.bfloat16, requires_grad=True)
    with census(layer) as counted:
        layer(x)[0].float().sum().backward()
    found = {direction: text for _, direction, text, _ in counted.gemms}
    assert tuple(found[d] for d in ("fprop", "dgrad", "wgrad")) == formats
    assert x.grad is not None


def test_state_dict_and_sharded_keys_are_megatrons() -> None:
    plain = ColumnParallelLinear(64, 96, config=config(), init_method=torch.nn.init.zeros_)
    assert set(linear(0).state_dict()) == set(plain.state_dict())


def test_main_grad_is_honoured_as_megatron_expects() -> None:
    layer = linear(0)
    layer.gradient_accumulation_fusion = True
    layer.weight.main_grad = torch.zeros(96, 64)
    layer.weight.grad_added_to_main_grad = False
    x = torch.randn(6, 2, 64, dtype=torch.bfloat16)
    for _ in range(2):
        layer(x)[0].float().sum().backward()
    assert layer.weight.grad_added_to_main_grad
    reference = linear(0)
    with torch.no_grad():
        reference.weight.copy_(layer.weight)
    reference(x)[0].float().sum().backward()
    error = (layer.weight.main_grad - 2 * reference.weight.grad.float()).norm()
    assert float(error / layer.weight.main_grad.norm()) < 0.01


def test_stochastic_plans_advance_their_state_in_training_only() -> None:
    layer = linear(0, mxfp4())
    x = torch.randn(6, 2, 64, dtype=torch.bfloat16)
    layer(x)[0].float().sum().backward()
    with torch.no_grad():
        layer(x)
    assert layer.rng.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tensor_model_parallel_size": 2}, "tensor_model_parallel_size=2 must be 1"),
        ({"sequence_parallel": True}, "sequence_parallel=True must be False"),
        ({"expert_model_parallel_size": 4}, "expert_model_parallel_size=4 must be 1"),
    ],
)
def test_what_it_cannot_honour_is_refused_at_build(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MXValueError, match=f"local mxfp6 linear: {message}"):
        linear(0, **changes)


def test_a_backend_that_is_absent_is_refused_at_build() -> None:
    with pytest.raises(MXUnavailableError, match="local mxfp4 linear: GEMM backend 'aiter'"):
        linear(0, mxfp4("aiter"))


def test_plans_follow_the_config_and_unknown_ones_are_refused() -> None:
    def asked(**fields: Any) -> Any:
        return SimpleNamespace(**{"fp8": None, "fp4": None, "fp6": None} | fields)

    assert plan_for(asked(fp6="e3m2"), "emulated").x_row.format == "e3m2"
    assert plan_for(asked(fp4="e2m1", fp4_recipe="mxfp4"), "emulated") == mxfp4()
    assert plan_for(asked(fp8="e4m3", fp8_recipe="mxfp8"), "emulated").name == "mxfp8"
    for fields in (
        {"fp4": "e2m1", "fp4_recipe": "nvfp4"},
        {"fp8": "hybrid", "fp8_recipe": "delayed"},
    ):
        with pytest.raises(MXValueError, match="is not served; valid: fp4='e2m1' with mxfp4"):
            plan_for(asked(**fields), "emulated")
    with pytest.raises(MXValueError, match="one of fp8, fp4, fp6 must be set"):
        plan_for(asked(fp4="e2m1", fp6="e2m3"), "emulated")
    provider = local_linear_provider("emulated", backward="bf16")
    assert provider(asked(fp6="e2m3")) is provider(asked(fp6="e2m3"))
    assert provider(asked(fp6="e2m3"))[0].plan.backward == "bf16"
