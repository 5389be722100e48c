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
from mxflux.flux.fused import GATE_FIELDS, Implementation, register_fusion
from mxflux.flux.layer_specs import get_flux_layer_spec
from mxflux.flux.model import FluxModel
from mxflux.flux.norms import layer_norm_modulate
from mxflux.flux.patchify import image_ids, text_ids

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
    with pytest.raises(ValueError, match=r"ids have dtype torch.bfloat16"):
        model(**narrow)


def test_positions_matter() -> None:
    model, x = tiny.model(), tiny.cast(tiny.inputs(), torch.float32)
    turned = {**x, "img_ids": x["img_ids"].flip(1)}
    assert not torch.allclose(model(**turned), model(**x), atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ambient_autocast_changes_nothing(dtype: torch.dtype) -> None:
    model = tiny.model(bf16=dtype is torch.bfloat16, params_dtype=dtype)
    plain = run(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(run(model), plain)
    assert plain.dtype == dtype


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
def registered(monkeypatch: pytest.MonkeyPatch) -> dict[str, Implementation]:
    """The registry of fused operations, empty for the length of a test."""
    empty: dict[str, Implementation] = {}
    monkeypatch.setattr(fused, "_registered", empty)
    return empty


def fine(*_: Any) -> None:
    """Nothing speaks against it."""


def norm_rope(
    mixed: Tensor, q_weight: Tensor, k_weight: Tensor, table: Any, *, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The fused kernel's formula, from its own form of the table."""
    q, k, v = split_mixed_qkv(mixed)
    half = table.cos_sin.shape[-1] // 2
    cos, sin = table.cos_sin[..., None, :half], table.cos_sin[..., None, half:]

    def turn(x: Tensor, weight: Tensor) -> Tensor:
        x = torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps)
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)

    return turn(q, q_weight), turn(k, k_weight), v


def counts(model: FluxModel) -> dict[tuple[str, str], int]:
    return {(r.key, r.place): r.engaged for r in model.fusion_gates.report()}


def test_gates_are_off_by_default_and_yaml_booleans_are_understood() -> None:
    config = tiny.config()
    assert {getattr(config, key) for key in GATE_FIELDS} == {"off"}
    assert not FluxModel(config).fusion_gates.report()
    assert tiny.config(fused_mlp=True).fused_mlp == "on"
    assert tiny.config(fused_mlp=False).fused_mlp == "off"


def test_a_norm_that_packs_is_refused_without_mx_linears() -> None:
    why = "precision: got transformer_impl=local, bf16, expected transformer_impl=local with fp8"
    with pytest.raises(ValueError, match=f"fused_ln_pack=on in joint.0.image .*{why}"):
        FluxModel(tiny.config(fused_ln_pack="on"))


def test_biases_go_into_the_gemms_of_plain_linears() -> None:
    model = tiny.model(fused_mlp="on")
    torch.testing.assert_close(run(model), run(tiny.model()))
    assert {key: n for (key, _), n in counts(model).items()} == {"fused_mlp": 1}
    with pytest.raises(ValueError, match=r"fused_qkv_prologue=on .* mixed device: got cpu"):
        run(tiny.model(fused_qkv_prologue="on"))


def test_auto_counts_why_it_declined(registered: dict[str, Implementation]) -> None:
    register_fusion("fused_mlp", Implementation(fine, fine, lambda _: "no GPU"))
    model = tiny.model(fused_mlp="auto")
    assert torch.equal(run(model), run(tiny.model()))
    reports = model.fusion_gates.report()
    assert [report.declined for report in reports] == [{"no GPU": 1}] * 6
    assert [report.place for report in reports] == PLACES


PLACES = ["joint.0.image", "joint.0.text", "joint.1.image", "joint.1.text", "single.2", "single.3"]


def test_kernels_that_cannot_run_here_are_refused_or_declined() -> None:
    with pytest.raises(ValueError, match=r"fused_ln_modulate=on in joint.0.image .*device"):
        run(tiny.model(fused_ln_modulate="on"))
    model = tiny.model(fused_ln_modulate="auto", fused_gate_residual="auto")
    assert torch.equal(run(model), run(tiny.model()))
    assert not any(counts(model).values())
    assert all(report.declined for report in model.fusion_gates.report())


@pytest.mark.parametrize("state", ["on", "auto"])
def test_fused_norm_and_rotation_engage_in_every_stream(
    registered: dict[str, Implementation], state: str
) -> None:
    tables: list[Any] = []

    def recorded(*args: Any, **kwargs: Any) -> Any:
        tables.append(args[3])
        return norm_rope(*args, **kwargs)

    register_fusion("fused_qk_norm_rope", Implementation(recorded, fine))
    model = tiny.model(fused_qk_norm_rope=state)
    torch.testing.assert_close(run(model), run(tiny.model()))
    assert counts(model) == {("fused_qk_norm_rope", place): 1 for place in PLACES}
    assert [table.length for table in tables] == [8, 5, 8, 5, 13, 13]
    assert tables[0] is tables[2]
    assert tables[1] is tables[3]
    assert tables[4] is tables[5]
    model.fusion_gates.require_engaged()


def test_fused_prologue_and_mlp_engage(registered: dict[str, Implementation]) -> None:
    def prologue(
        hidden: Tensor, linear: Any, q: Tensor, k: Tensor, table: Any, *, heads: int, eps: float
    ) -> Any:
        mixed = linear(hidden)[0].unflatten(-1, (heads, -1))
        return norm_rope(mixed, q, k, table.fused, eps=eps)

    register_fusion("fused_qkv_prologue", Implementation(prologue, fine))
    register_fusion("fused_mlp", Implementation(lambda mlp, x: mlp(x), fine))
    model = tiny.model(fused_qkv_prologue="on", fused_mlp="on")
    torch.testing.assert_close(run(model), run(tiny.model()))
    assert set(counts(model).values()) == {1}
    assert len(counts(model)) == 2 * len(PLACES)


def test_fused_modulations_engage(registered: dict[str, Implementation]) -> None:
    def modulate(x: Tensor, scale: Tensor, shift: Tensor, *, eps: float) -> Tensor:
        return layer_norm_modulate(x, shift, scale, eps)

    def residual(
        x: Tensor, y: Tensor, gate: Tensor, scale: Tensor, shift: Tensor, *, eps: float
    ) -> tuple[Tensor, Tensor]:
        h = x + gate * y
        return h, layer_norm_modulate(h, shift, scale, eps)

    register_fusion("fused_ln_modulate", Implementation(modulate, fine))
    expected = run(tiny.model())
    model = tiny.model(fused_ln_modulate="on")
    assert torch.equal(run(model), expected)
    assert [counts(model)["fused_ln_modulate", place] for place in PLACES] == [2, 2, 2, 2, 1, 1]
    assert counts(model)["fused_ln_modulate", "norm_out"] == 1
    register_fusion("fused_gate_residual", Implementation(residual, fine))
    model = tiny.model(fused_ln_modulate="on", fused_gate_residual="on")
    torch.testing.assert_close(run(model), expected)
    assert [counts(model)["fused_ln_modulate", place] for place in PLACES] == [1] * 6
    assert [counts(model)["fused_gate_residual", place] for place in PLACES[:4]] == [1] * 4


def test_unknown_gate_is_refused() -> None:
    with pytest.raises(ValueError, match="'rope' is no fusion gate"):
        register_fusion("rope", Implementation(print, fine))


def test_a_spec_brings_its_own_gates() -> None:
    config = tiny.config(fused_ln_modulate="auto")
    spec = get_flux_layer_spec(config)
    model = FluxModel(config, layer_spec=spec)
    assert {place for _, place in counts(model)} == {*PLACES, "norm_out"}
