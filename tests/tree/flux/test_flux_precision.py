# SPDX-License-Identifier: Apache-2.0
"""Routing of the quantization context, and that no precision is lost on the way."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import flux_tiny as tiny
import pytest
from megatron.core import fp4_utils, fp8_utils

from mxflux.flux import layer_specs, precision
from mxflux.flux.config import FluxConfig


class Spy:
    """A context builder that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.contexts: list[Recorded] = []

    def __call__(self, *args: Any) -> Recorded:
        self.calls.append(args)
        self.contexts.append(Recorded())
        return self.contexts[-1]


class Recorded:
    """A context that is no nullcontext and counts entries."""

    entered = 0

    def __enter__(self) -> None:
        self.entered += 1

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def builders(monkeypatch: pytest.MonkeyPatch) -> dict[str, Spy]:
    spies = {name: Spy() for name in ("fp8", "fp4", "fp6")}
    monkeypatch.setattr(fp8_utils, "get_fp8_context", spies["fp8"])
    monkeypatch.setattr(fp4_utils, "get_fp4_context", spies["fp4"])
    monkeypatch.setattr(precision, "_fp6_builder", spies["fp6"])
    return spies


def te(**fields: Any) -> FluxConfig:
    return tiny.config(transformer_impl="transformer_engine", **fields)


FP4 = {"fp4": "e2m1", "fp4_recipe": "nvfp4"}


@pytest.mark.parametrize("fields", [{"fp8": "e4m3"}, FP4, {"fp6": "e2m3"}])
def test_local_spec_never_has_a_context(builders: dict[str, Spy], fields: dict[str, Any]) -> None:
    context = precision.get_fp8_context(tiny.config(**fields))
    assert isinstance(context, nullcontext)
    assert not any(spy.calls for spy in builders.values())


@pytest.mark.parametrize(
    ("name", "fields"), [("fp8", {"fp8": "e4m3"}), ("fp4", FP4), ("fp6", {"fp6": "e2m3"})]
)
def test_builder_is_called_once_with_the_config_and_its_object_returned(
    builders: dict[str, Spy], name: str, fields: dict[str, Any]
) -> None:
    config = te(**fields)
    assert precision.get_fp8_context(config) is builders[name].contexts[0]
    assert {key: spy.calls for key, spy in builders.items() if spy.calls} == {name: [(config,)]}


def test_nothing_asked_for_is_no_context(builders: dict[str, Spy]) -> None:
    assert isinstance(precision.get_fp8_context(te()), nullcontext)
    assert not any(spy.calls for spy in builders.values())


def test_fp8_wins_over_fp4(builders: dict[str, Spy]) -> None:
    config = te(**FP4)
    config.fp8 = "e4m3"  # not reachable through the constructor, which refuses the pair
    assert precision.get_fp8_context(config) is builders["fp8"].contexts[0]
    assert not builders["fp4"].calls


def test_edge_layers_in_bf16_get_contexts_of_their_own(builders: dict[str, Spy]) -> None:
    config = te(**FP4, first_last_layers_bf16=True)
    assert isinstance(precision.get_fp8_context(config), nullcontext)
    for layer in range(config.num_layers):
        precision.get_layer_context(config, layer)
    assert builders["fp4"].calls == [(config, layer) for layer in range(config.num_layers)]


def test_layers_have_no_context_of_their_own_otherwise(builders: dict[str, Spy]) -> None:
    assert isinstance(precision.get_layer_context(te(**FP4), 0), nullcontext)
    assert not builders["fp4"].calls


@pytest.mark.parametrize("fields", [{"fp8": "e4m3"}, FP4])
def test_an_empty_context_of_megatron_is_an_error(fields: dict[str, Any]) -> None:
    """Without TransformerEngine Megatron's builders return nullcontext: that would be BF16."""
    with pytest.raises(RuntimeError, match="silently be BF16"):
        precision.get_fp8_context(te(**fields))
    exempt = te(**fields, first_last_layers_bf16=True, fp8_recipe="tensorwise") if "fp8" in fields \
        else te(**fields, first_last_layers_bf16=True)  # fmt: skip
    precision.get_layer_context(exempt, 0)
    with pytest.raises(RuntimeError, match="silently be BF16"):
        precision.get_layer_context(exempt, 1)


def test_fp6_without_te_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="fp6='e2m3' needs Transformer Engine"):
        precision.get_fp8_context(te(fp6="e2m3"))


@pytest.mark.parametrize("fields", [{"fp8": "e4m3"}, FP4, {"fp6": "e3m2"}])
def test_local_spec_without_quantized_linears_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="no local linear serves it"):
        layer_specs.get_flux_layer_spec(tiny.config(**fields))


def test_te_spec_without_te_is_refused() -> None:
    with pytest.raises(RuntimeError, match="transformer_engine cannot be imported"):
        layer_specs.get_flux_layer_spec(te())


def test_only_the_transformer_is_inside_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    depth, seen = [0], {}

    class Depth:
        def __enter__(self) -> None:
            depth[0] += 1

        def __exit__(self, *_: object) -> None:
            depth[0] -= 1

    monkeypatch.setattr("mxflux.flux.transformer.get_fp8_context", lambda _: Depth())
    model = tiny.model()

    def note(name: str) -> Any:
        def hook(*_: Any) -> None:
            seen[name] = depth[0]

        return hook

    for name, module in model.named_modules():
        module.register_forward_hook(note(name))
    model(**tiny.cast(tiny.inputs(), next(model.parameters()).dtype))
    quantized = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
    inside = {name for name in seen if name.endswith(quantized)}
    assert {seen[name] for name in inside} == {1}
    assert len(inside) == model.config.architecture.num_quantized_linears
    outside = ("img_embed", "txt_embed", "vector_embedding", "timestep_embedding", "proj_out")
    assert [seen[name] for name in outside] == [0] * len(outside)


@pytest.mark.parametrize(
    ("fp4", "impl", "refused"),
    [
        ("mxfp4", "transformer_engine", True),
        (None, "transformer_engine", False),
        ("mxfp4", "local", False),
    ],
)
def test_turbo_gemm_under_native_autocast(fp4: str | None, impl: str, refused: bool) -> None:
    fields = {"use_turbo_gemm": True, "native_te_autocast": True, "transformer_impl": impl}
    if not refused:
        precision.check_turbo_gemm(fp4=fp4, **fields)
        return
    with pytest.raises(ValueError, match="use_turbo_gemm=True with fp4='mxfp4'"):
        precision.check_turbo_gemm(fp4=fp4, **fields)
