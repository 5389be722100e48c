# SPDX-License-Identifier: Apache-2.0
"""FluxConfig: defaults, coercions, and every refusal with field and value."""

from __future__ import annotations

import dataclasses
from typing import Any

import flux_tiny as tiny
import pytest
import torch
from megatron.core.transformer.enums import AttnBackend
from megatron.core.transformer.transformer_config import TransformerConfig

from mxflux.flux.config import FluxConfig, flux_12b, flux_535m, gelu_tanh
from mxflux.flux.config_rules import ACTED_ON, FILLED_IN, FIXED
from mxflux.flux.model import FluxModel


@pytest.mark.parametrize(
    ("preset", "joint", "single", "parameters", "quantized"),
    [(flux_535m, 1, 1, 535_318_336, 12), (flux_12b, 19, 38, 11_891_178_560, 304)],
)
def test_presets_and_their_census_without_allocation(
    preset: Any, joint: int, single: int, parameters: int, quantized: int
) -> None:
    config = preset(transformer_impl="local")
    assert (config.num_joint_layers, config.num_single_layers) == (joint, single)
    assert config.num_layers == joint + single
    assert (config.hidden_size, config.num_attention_heads, config.head_dim) == (3072, 24, 128)
    with torch.device("meta"):
        model = FluxModel(config)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert shapes == config.architecture.parameter_shapes()
    assert all(p.is_meta for p in model.parameters())
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert config.architecture.num_parameters == parameters
    names = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
    linears = [name for name, _ in model.named_modules() if name.endswith(names)]
    assert len(linears) == quantized == config.architecture.num_quantized_linears


def test_guidance_adds_one_embedder() -> None:
    assert flux_12b(guidance_embed=True).architecture.num_parameters == 11_901_408_320


def test_defaults() -> None:
    config = FluxConfig()
    assert config.ffn_hidden_size == 12288
    assert config.out_channels == config.in_channels == 64
    assert config.activation_func is gelu_tanh
    assert config.init_method is config.output_layer_init_method is torch.nn.init.xavier_uniform_
    assert config.hetereogenous_dist_checkpoint is True
    assert config.fp4_use_native_te_autocast is False
    assert config.attention_backend is AttnBackend.auto
    assert (config.fp8, config.fp4, config.fp6) == (None, None, None)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, "auto"),
        ("", "auto"),
        ("  ", "auto"),
        ("fused", "fused"),
        ("  fused  ", "fused"),
        (AttnBackend.flash, "flash"),
    ],
)
def test_attention_backend_is_a_member(given: Any, expected: str) -> None:
    assert FluxConfig(attention_backend=given).attention_backend is AttnBackend[expected]


@pytest.mark.parametrize("given", ["FUSED", "bogus"])
def test_unknown_attention_backend_names_value_and_choices(given: str) -> None:
    with pytest.raises(ValueError, match=rf"Unknown attention_backend '{given}'.*'flash', 'fused'"):
        FluxConfig(attention_backend=given)


def test_lists_and_names_are_coerced() -> None:
    config = FluxConfig(axes_dim=[16, 56, 56], activation_func="openai_gelu")
    assert config.axes_dim == (16, 56, 56)
    assert config.activation_func is gelu_tanh
    assert FluxConfig(activation_func="erf_gelu").activation_func is torch.nn.functional.gelu


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"hetereogenous_dist_checkpoint": False}, "requires hetereogenous_dist_checkpoint=True"),
    ({"model_type": "sd3"}, "model_type='flux', got 'sd3'"),
    ({"rotary_interleaved": False}, "rotary_interleaved=True, got False"),
    ({"pipeline_model_parallel_size": 2}, "pipeline_model_parallel_size=1, got 2"),
    ({"context_parallel_size": 2}, "context_parallel_size=1, got 2"),
    ({"sequence_parallel": True}, "sequence_parallel=False, got True"),
    ({"hidden_dropout": 0.1}, r"hidden_dropout=0\.0, got 0\.1"),
    ({"num_joint_layers": 0}, "num_joint_layers=0 must be a positive integer"),
    ({"num_single_layers": -1}, "num_single_layers=-1"),
    ({"num_layers": 5}, "num_layers=5 is not num_joint_layers"),
    ({"context_dim": 0}, "context_dim=0"),
    ({"vec_in_dim": 0}, "vec_in_dim=0"),
    ({"theta": 0}, "theta=0"),
    ({"in_channels": 0}, "in_channels=0"),
    ({"patch_size": True}, "patch_size=True"),
    ({"num_attention_heads": 23}, "hidden_size=3072 is not divisible by num_attention_heads=23"),
    ({"axes_dim": (64, 64)}, r"axes_dim=\(64, 64\) must have 3 entries"),
    ({"axes_dim": (16, 56, 58)}, "sums to 130, not to head_dim=128"),
    ({"axes_dim": (17, 55, 56)}, "17 is odd"),
    ({"axes_dim": (0, 72, 56)}, r"axes_dim=\(0, 72, 56\) must be a positive"),
    ({"kv_channels": 64}, "kv_channels=64 is not head_dim=128"),
    ({"num_query_groups": 8}, "num_query_groups=8"),
    ({"tensor_model_parallel_size": 5}, "tensor_model_parallel_size=5"),
    ({"cfg_dropout_prob": 1.5}, "cfg_dropout_prob=1.5"),
    ({"attention_dropout": 1.0}, "attention_dropout=1.0"),
    ({"layernorm_epsilon": 0.0}, "layernorm_epsilon=0.0"),
    ({"timestep_sampling_strategy": "normal"}, "timestep_sampling_strategy='normal' is unknown"),
    ({"transformer_impl": "inference_optimized"}, "transformer_impl='inference_optimized'"),
    ({"activation_func": "silu"}, "activation_func='silu' is unknown"),
    ({"fused_qk_norm_rope": 2}, "fused_qk_norm_rope: got 2, expected one of off, on, auto"),
    ({"fused_qkv_prologue": "yes"}, "fused_qkv_prologue: got 'yes'"),
    ({"fused_qkv_prologue": "on", "fused_qk_norm_rope": "on"}, "only one of them can run"),
    ({"fused_qk_norm_rope": "auto", "apply_rope_fusion": True}, "both claim the rotation"),
    ({"guidance_scale": 4.0}, "guidance_scale=4.0 has no effect without guidance_embed"),
    ({"guidance_embed": "yes"}, "guidance_embed='yes' must be true or false"),
    ({"fp4": "mxfp4"}, "fp4='mxfp4' needs fp4_recipe"),
    ({"fp4_recipe": "mxfp4"}, "fp4_recipe='mxfp4' has no effect without fp4"),
    ({"fp4_use_native_te_autocast": True}, "has no effect without fp4"),
    ({"fp6": "e2m3", "fp8": "e4m3"}, "fp8='e4m3', fp6='e2m3': choose one"),
    ({"fp6": "e2m3", "fp4": "mxfp4", "fp4_recipe": "mxfp4"}, "choose one"),
    ({"fp6": "mxfp6"}, "fp6='mxfp6' is unknown"),
    ({"fp8_margin": 2}, "fp8_margin=2 has no effect without fp8"),
    ({"first_last_layers_bf16": True}, "first_last_layers_bf16=True has no effect without"),
    ({"num_layers_at_start_in_bf16": 3}, "num_layers_at_start_in_bf16=3 has no effect"),
    ({"transformer_impl": "local", "apply_rope_fusion": True}, "apply_rope_fusion=True"),
    ({"transformer_impl": "local", "attention_backend": "fused"}, "attention_backend='fused'"),
    ({"attention_backend": "local"}, "attention_backend='local'"),
    ({"recompute_modules": ["mlp"]}, r"recompute_modules=\['mlp'\]"),
    ({"recompute_num_layers": 2}, "recompute_num_layers=2 has no effect"),
    ({"distribute_saved_activations": True}, "distribute_saved_activations=True has no effect"),
    ({"num_moe_experts": 4}, "num_moe_experts=4 has no effect on Flux"),
    ({"normalization": "RMSNorm"}, "normalization='RMSNorm' has no effect on Flux"),
    ({"bias_activation_fusion": True}, "bias_activation_fusion=True has no effect on Flux"),
    ({"fp32_residual_connection": True}, "fp32_residual_connection=True has no effect"),
    ({"cuda_graph_impl": "local"}, "cuda_graph_impl='local' has no effect"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED, ids=[str(case[0]) for case in REFUSED])
def test_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FluxConfig(**fields)


def test_all_problems_at_once() -> None:
    with pytest.raises(ValueError, match=r"(?s)4 problem.*theta=0") as caught:
        FluxConfig(theta=0, model_type="x", cfg_dropout_prob=2, window_size=(1, 1))
    assert len(str(caught.value).splitlines()) == 5


def test_every_megatron_field_is_acted_on_fixed_or_refused() -> None:
    """A field added by a later Megatron is refused until someone decides what it means here."""
    known = ACTED_ON | FIXED.keys() | FILLED_IN
    for field in dataclasses.fields(TransformerConfig):
        if field.name in known or field.default_factory is not dataclasses.MISSING:
            continue
        other = "other"
        with pytest.raises(ValueError, match=f"{field.name}={other!r} has no effect on Flux"):
            FluxConfig(**{field.name: other})


def test_a_config_can_be_replaced() -> None:
    config = dataclasses.replace(tiny.config(bf16=True, params_dtype=torch.bfloat16), theta=500)
    assert config.theta == 500
    assert config.architecture.theta == 500
