# SPDX-License-Identifier: Apache-2.0
"""The model's behaviour: layouts, initial output, dtypes, recomputation, gates, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import flux_tiny as tiny
import pytest
import torch
from mxflux.flux import fused
from mxflux.flux.attention import split_mixed_qkv
from mxflux.flux.config import FluxConfig
from mxflux.flux.fused import GATE_FIELDS, BlockOps, Implementation, register_fusion, resolve_ops
from mxflux.flux.model import FluxModel
from mxflux.flux.norms import layer_norm_modulate
from mxflux.flux.patchify import image_ids, text_ids
from mxflux.flux.rope import apply_rotary

if TYPE_CHECKING:
    from torch import Tensor


def run(model: FluxModel, **kwargs: Any) -> Tensor:
    out: Tensor = model(**tiny.cast(tiny.inputs(**kwargs), next(model.parameters()).dtype))
    return out


def test_output_is_exactly_zero_at_init_and_gradients_flow() -> None:
    model = FluxModel(tiny.config())
    out = run(model)
    assert out.shape == (8, 3, 8)
    assert torch.equal(out, torch.zeros_like(out))
    (out - 1).square().sum().backward()
    assert model.proj_out.bias.grad.abs().min() > 0


def test_initial_values_follow_the_recipe() -> None:
    config = FluxConfig.from_architecture(
        replace(tiny.ARCHITECTURE, hidden_size=192, num_attention_heads=12, ffn_hidden_size=768),
        transformer_impl="local",
    )
    torch.manual_seed(0)
    state = dict(FluxModel(config).named_parameters())
    zero = ("adaLN_modulation", "proj_out.", "bias")
    for name, value in state.items():
        if any(part in name for part in zero):
            assert not value.any(), name
        elif "layernorm" in name:
            assert (value == 1).all(), name
        elif "embedding" in name:
            assert value.std().item() == pytest.approx(0.02, rel=0.05), name
        else:
            bound = (6 / sum(value.shape)) ** 0.5
            assert value.abs().max() <= bound, name
            assert value.std().item() == pytest.approx(bound / 3**0.5, rel=0.05), name


def test_two_builds_are_bitwise_equal() -> None:
    states = []
    for _ in range(2):
        torch.manual_seed(7)
        states.append(dict(FluxModel(tiny.config()).named_parameters()))
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize("batch", [1, 3])
def test_layouts_are_explicit_and_equal_also_when_batch_exceeds_sequence(batch: int) -> None:
    model = tiny.model()
    x = tiny.cast(tiny.inputs(batch=batch, text=1, height=2, width=2), torch.float32)
    expected = model(**x)
    swapped = {**x, "img": x["img"].transpose(0, 1), "txt": x["txt"].transpose(0, 1)}
    assert torch.equal(model(**swapped, layout="bsh"), expected.transpose(0, 1))


def test_samples_of_a_batch_do_not_mix() -> None:
    model, x = tiny.model(), tiny.cast(tiny.inputs(), torch.float32)
    whole = model(**x)
    alone = {name: v[:, 1:2] if name in ("img", "txt") else v[1:2] for name, v in x.items()}
    torch.testing.assert_close(model(**alone), whole[:, 1:2])


def test_one_set_of_ids_serves_the_whole_batch() -> None:
    model, x = tiny.model(), tiny.cast(tiny.inputs(), torch.float32)
    one = {**x, "img_ids": image_ids(1, 4, 8), "txt_ids": text_ids(1, 5)}
    assert torch.equal(model(**one), model(**x))


def test_integer_and_fp32_ids_agree_and_bf16_is_refused() -> None:
    model, x = tiny.model(), tiny.cast(tiny.inputs(), torch.float32)
    as_float = {**x, "img_ids": x["img_ids"].float(), "txt_ids": x["txt_ids"].float()}
    assert torch.equal(model(**as_float), model(**x))
    narrow = {**x, "img_ids": x["img_ids"].bfloat16(), "txt_ids": x["txt_ids"].bfloat16()}
    with pytest.raises(ValueError, match="ids have dtype torch.bfloat16"):
        model(**narrow)


def test_positions_matter() -> None:
    model, x = tiny.model(), tiny.cast(tiny.inputs(), torch.float32)
    turned = {**x, "img_ids": x["img_ids"].flip(1)}
    assert not torch.allclose(model(**turned), model(**x), atol=1e-3)


def test_ambient_autocast_changes_nothing() -> None:
    model = tiny.model(bf16=True, params_dtype=torch.bfloat16)
    plain = run(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(run(model), plain)
    assert plain.dtype == torch.bfloat16


def test_every_attention_sees_one_dtype_also_with_fp32_norm_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny.model(params_dtype=torch.bfloat16, bf16=True)
    seen = []
    for layer in model.transformer.layers:
        attention = layer.self_attention
        attention.q_layernorm.weight.data = attention.q_layernorm.weight.data.float()
        monkeypatch.setattr(attention.q_layernorm, "forward", lambda x: x.float())
        attention.core_attention.register_forward_pre_hook(
            lambda _, args: seen.append({x.dtype for x in args})
        )
    run(model)
    assert seen == [{torch.bfloat16}] * 4


WRONG: list[tuple[str, Any, str]] = [
    ("img", lambda x: x[..., :-1], r"img must have shape \(8, 3, 8\), got \(8, 3, 7\)"),
    ("txt", lambda x: x[:, :2], r"txt must have shape \(5, 3, 20\)"),
    ("txt", lambda x: x[0], r"txt must be \['s', 'b', 'h'\]"),
    ("y", lambda x: x[:2], "y must have shape"),
    ("timesteps", lambda x: x[:, None], "timesteps must have shape"),
    ("img_ids", lambda x: x[:, :-1], "img_ids must have shape"),
    ("txt_ids", lambda x: x[:2], "txt_ids must have shape"),
]


@pytest.mark.parametrize(("name", "change", "message"), WRONG)
def test_inputs_that_do_not_fit_are_named(name: str, change: Any, message: str) -> None:
    model, x = tiny.model(), tiny.cast(tiny.inputs(), torch.float32)
    with pytest.raises(ValueError, match=message):
        model(**{**x, name: change(x[name])})


def test_guidance_must_match_the_config() -> None:
    x = tiny.cast(tiny.inputs(guidance=True), torch.float32)
    with pytest.raises(ValueError, match="guidance_embed=False has no use for it"):
        tiny.model()(**x)
    del x["guidance"]
    with pytest.raises(ValueError, match="needs guidance"):
        tiny.model(guidance_embed=True)(**x)


def test_unknown_layout_and_pipeline_hooks_are_refused() -> None:
    model, x = tiny.model(), tiny.cast(tiny.inputs(), torch.float32)
    with pytest.raises(ValueError, match="layout='hbs' is unknown"):
        model(**x, layout="hbs")
    model.set_input_tensor([None])
    with pytest.raises(ValueError, match="without pipeline parallelism"):
        model.set_input_tensor(x["img"])
    with pytest.raises(ValueError, match="pre_process=False"):
        FluxModel(tiny.config(), pre_process=False)


def test_bias_switches_remove_exactly_those_biases() -> None:
    names = set(tiny.ARCHITECTURE.parameter_shapes())
    without = FluxModel(tiny.config(add_qkv_bias=False, single_block_bias=False))
    gone = names - {name for name, _ in without.named_parameters()}
    assert gone == {
        *(f"transformer.layers.{i}.self_attention.linear_qkv.bias" for i in range(4)),
        *(f"transformer.layers.{i}.self_attention.added_linear_qkv.bias" for i in range(2)),
        *(f"transformer.layers.{i}.mlp.linear_fc{n}.bias" for i in (2, 3) for n in (1, 2)),
    }
    run(without)


# -- fusion gates ---------------------------------------------------------------------------


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, Implementation]:
    empty: dict[str, Implementation] = {}
    monkeypatch.setattr(fused, "_implementations", empty)
    return empty


def fused_qk_norm_rope(
    mixed: Tensor, q_weight: Tensor, k_weight: Tensor, table: Any, *, heads: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = split_mixed_qkv(mixed, heads)

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps)

    return apply_rotary(norm(q, q_weight), table), apply_rotary(norm(k, k_weight), table), v


def counted(function: Any, calls: list[Any]) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return function(*args, **kwargs)

    return call


def test_gates_default_to_off_and_on_without_implementation_is_refused(
    registry: dict[str, Implementation],
) -> None:
    config = tiny.config()
    assert {getattr(config, gate) for gate in GATE_FIELDS} == {"off"}
    assert resolve_ops(config) == BlockOps(decisions=dict.fromkeys(GATE_FIELDS, "off"))
    for gate in GATE_FIELDS:
        with pytest.raises(ValueError, match=f"{gate}='on' cannot be served"):
            FluxModel(tiny.config(**{gate: "on"}))


def test_auto_says_why_it_stays_off(registry: dict[str, Implementation]) -> None:
    register_fusion("mlp_fusion", Implementation(lambda: None, lambda _: "no GPU"))
    decisions = resolve_ops(tiny.config(mlp_fusion="auto", ln_modulate_fusion="auto")).decisions
    assert decisions["mlp_fusion"] == "off: no GPU"
    assert decisions["ln_modulate_fusion"] == "off: no implementation is registered"


@pytest.mark.parametrize("state", ["on", "auto"])
def test_fused_norm_and_rotation_engage_in_every_stream(
    registry: dict[str, Implementation], state: str
) -> None:
    calls: list[Any] = []
    function = counted(fused_qk_norm_rope, calls)
    register_fusion("qk_norm_rope_fusion", Implementation(function, lambda _: None))
    out = run(tiny.model(qk_norm_rope_fusion=state))
    assert [len(args[3]) for args in calls] == [8, 5, 8, 5, 13, 13]
    tables = [args[3] for args in calls]
    assert tables[0] is tables[2]
    assert tables[1] is tables[3]
    torch.testing.assert_close(out, run(tiny.model()))


def test_fused_modulation_engages(registry: dict[str, Implementation]) -> None:
    calls: list[Any] = []
    function = counted(layer_norm_modulate, calls)
    register_fusion("ln_modulate_fusion", Implementation(function, lambda _: None))
    assert torch.equal(run(tiny.model(ln_modulate_fusion="on")), run(tiny.model()))
    assert len(calls) == 4 * 2 + 1 * 2


def test_fused_mlp_engages(registry: dict[str, Implementation]) -> None:
    calls: list[Any] = []
    function = counted(lambda mlp, x: mlp(x), calls)
    register_fusion("mlp_fusion", Implementation(function, lambda _: None))
    assert torch.equal(run(tiny.model(mlp_fusion="on")), run(tiny.model()))
    assert len(calls) == 2 * 2 + 2


def test_fused_prologue_engages(registry: dict[str, Implementation]) -> None:
    calls: list[Any] = []

    def prologue(hidden: Tensor, linear: Any, *args: Any, **kwargs: Any) -> Any:
        return fused_qk_norm_rope(linear(hidden)[0], *args, **kwargs)

    function = counted(prologue, calls)
    register_fusion("qkv_prologue_fusion", Implementation(function, lambda _: None))
    torch.testing.assert_close(run(tiny.model(qkv_prologue_fusion="on")), run(tiny.model()))
    assert len(calls) == 2 * 2 + 2


def test_unknown_gate_is_refused() -> None:
    with pytest.raises(ValueError, match="'rope' is no fusion gate"):
        register_fusion("rope", Implementation(print, lambda _: None))
