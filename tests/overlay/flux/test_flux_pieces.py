# SPDX-License-Identifier: Apache-2.0
"""Architecture, patchify, rotation, embeddings, norms: against formulas written out again."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mxflux.flux.architecture import FLUX_12B, FLUX_535M, FLUX_TINY, PRESETS, FluxArchitecture
from mxflux.flux.embeddings import MLPEmbedder, TimestepEmbedding, sinusoidal_embedding
from mxflux.flux.modulation import AdaLNContinuous, AdaLNModulation
from mxflux.flux.norms import RMSNorm, gated_residual, layer_norm_modulate
from mxflux.flux.patchify import image_ids, pack_latents, text_ids, unpack_latents
from mxflux.flux.rope import EmbedND, RotaryTable, apply_rotary

# -- architecture ---------------------------------------------------------------------------


def test_parameter_counts() -> None:
    assert FLUX_12B.num_parameters == 11_891_178_560
    assert FLUX_535M.num_parameters == 535_318_336
    assert replace(FLUX_12B, guidance_embed=True).num_parameters == 11_901_408_320
    assert set(PRESETS.values()) == {FLUX_12B, FLUX_535M, FLUX_TINY}
    joint = replace(FLUX_535M, num_joint_layers=2).num_parameters - FLUX_535M.num_parameters
    single = replace(FLUX_535M, num_single_layers=2).num_parameters - FLUX_535M.num_parameters
    assert (joint, single) == (339_831_296, 141_591_808)


def test_quantized_linears() -> None:
    assert (FLUX_12B.num_quantized_linears, FLUX_535M.num_quantized_linears) == (304, 12)


def test_adaln_shapes_differ_between_blocks() -> None:
    shapes = FLUX_12B.parameter_shapes()
    assert shapes["transformer.layers.18.adaln.adaLN_modulation.1.weight"] == (18432, 3072)
    assert shapes["transformer.layers.19.adaln.adaLN_modulation.1.weight"] == (9216, 3072)
    assert "transformer.layers.19.self_attention.linear_proj.bias" not in shapes
    assert shapes["transformer.layers.56.mlp.linear_fc2.bias"] == (3072,)
    assert "transformer.layers.57.mlp.linear_fc2.bias" not in shapes


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": 0}, "hidden_size=0 must be a positive integer"),
        ({"num_single_layers": 1.5}, "num_single_layers=1.5"),
        ({"num_attention_heads": 7}, "hidden_size=3072 is not divisible by num_attention_heads=7"),
        ({"axes_dim": (16, 56)}, "must have 3 entries, got 2"),
        ({"axes_dim": (16, 56, 60)}, "sums to 132, not to head_dim=128"),
        ({"axes_dim": (15, 57, 56)}, "15 is odd"),
        ({"model_channels": 255}, "model_channels=255 must be even"),
    ],
)
def test_impossible_sizes_are_named(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FluxArchitecture(**fields)  # type: ignore[arg-type]


def test_differences_name_fields() -> None:
    other = replace(FLUX_12B, guidance_embed=True, num_joint_layers=18)
    assert FLUX_12B.differences(other) == [
        "num_joint_layers: 19 != 18",
        "guidance_embed: False != True",
    ]


# -- patchify -------------------------------------------------------------------------------


def test_pack_puts_the_channel_outermost() -> None:
    latents = torch.arange(2 * 3 * 4 * 6).reshape(2, 3, 4, 6)
    tokens = pack_latents(latents)
    assert tokens.shape == (2, 6, 12)
    for row, column, channel, dy, dx in [(0, 0, 0, 0, 0), (1, 2, 2, 1, 0), (0, 1, 1, 0, 1)]:
        expected = latents[1, channel, 2 * row + dy, 2 * column + dx]
        assert tokens[1, row * 3 + column, channel * 4 + 2 * dy + dx] == expected


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 5))
def test_unpack_inverts_pack(batch: int, channels: int, rows: int, columns: int) -> None:
    latents = torch.randn(batch, channels, 2 * rows, 2 * columns)
    assert torch.equal(unpack_latents(pack_latents(latents), 2 * rows, 2 * columns), latents)


def test_odd_sizes_and_wrong_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="latent size 5x4 must be even"):
        pack_latents(torch.zeros(1, 1, 5, 4))
    with pytest.raises(ValueError, match=r"must be \[B,C,H,W\]"):
        pack_latents(torch.zeros(1, 4, 4))
    with pytest.raises(ValueError, match="expected 4 tokens"):
        unpack_latents(torch.zeros(1, 5, 8), 4, 4)
    with pytest.raises(ValueError, match="latent size 4x3"):
        image_ids(1, 4, 3)
    with pytest.raises(ValueError, match="text length 0"):
        text_ids(1, 0)


def test_ids() -> None:
    ids = image_ids(2, 4, 6)
    assert ids.shape == (2, 6, 3)
    assert ids.dtype == torch.int32
    assert ids[1].tolist() == [[0, r, c] for r in range(2) for c in range(3)]
    assert not text_ids(2, 5).any()


# -- rotation -------------------------------------------------------------------------------


def test_angles_are_float64_rounded_once_and_doubled() -> None:
    ids = image_ids(2, 128, 128)
    angles = EmbedND(10000, (16, 56, 56), 128)(ids)
    assert angles.shape == (4096, 2, 1, 128)
    assert angles.dtype == torch.float32
    position, axis_start, width = ids[0, 4095].tolist(), (0, 16, 72), (16, 56, 56)
    for axis in range(3):
        for pair in range(width[axis] // 2):
            omega = np.float64(10000) ** (-2 * pair / width[axis])
            expected = np.float32(np.float64(position[axis]) * omega)
            for member in range(2):
                got = angles[4095, 1, 0, axis_start[axis] + 2 * pair + member].item()
                assert got == pytest.approx(expected, rel=1e-7)


def test_integer_and_fp32_ids_give_the_same_bits_also_above_256() -> None:
    embed = EmbedND(10000, (2, 4, 6), 12)
    ids = torch.tensor([[[0, 257, 1001], [0, 3, 4095]]])
    assert torch.equal(embed(ids), embed(ids.float()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_ids_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=f"ids have dtype {dtype}"):
        EmbedND(10000, (2, 4, 6), 12)(torch.zeros(1, 2, 3, dtype=dtype))


def test_wrong_axes_and_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="not to head_dim=14"):
        EmbedND(10000, (2, 4, 6), 14)
    with pytest.raises(ValueError, match=r"ids must be \[B,S,3\]"):
        EmbedND(10000, (2, 4, 6), 12)(torch.zeros(1, 2, 2))


def test_rotation_is_a_complex_product_of_adjacent_pairs() -> None:
    table = RotaryTable(EmbedND(100, (2, 2, 4), 8)(torch.randint(0, 50, (3, 5, 3))))
    x = torch.randn(5, 3, 2, 8, dtype=torch.float64)
    turned = torch.view_as_complex(x.unflatten(-1, (4, 2)).contiguous()) * torch.polar(
        torch.ones(5, 3, 1, 4, dtype=torch.float64), table.angles[..., ::2].double()
    )
    expected = torch.view_as_real(turned).flatten(-2)
    torch.testing.assert_close(apply_rotary(x, table), expected, atol=1e-6, rtol=1e-6)


def test_rotation_of_bf16_rounds_once() -> None:
    table = RotaryTable(EmbedND(100, (2, 2, 4), 8)(torch.randint(0, 50, (3, 5, 3))))
    x = torch.randn(5, 3, 2, 8).bfloat16()
    assert torch.equal(apply_rotary(x, table), apply_rotary(x.float(), table).bfloat16())


def test_split_equals_the_whole_and_keeps_identity() -> None:
    table = RotaryTable(torch.randn(7, 2, 1, 8))
    text, image = table.split(3)
    x = torch.randn(7, 2, 2, 8)
    parts = torch.cat((apply_rotary(x[:3], text), apply_rotary(x[3:], image)))
    assert torch.equal(parts, apply_rotary(x, table))
    assert table.split(3)[0] is text
    assert len(table.split(4)[0]) == 4
    with pytest.raises(ValueError, match="cannot split a table of 7 positions at 7"):
        table.split(7)


# -- embeddings, norms, modulation ----------------------------------------------------------


def test_sinusoid_is_cosines_then_sines() -> None:
    values = torch.tensor([0.0, 125.0, 1000.0])
    out = sinusoidal_embedding(values, 256)
    for row, value in enumerate(values.tolist()):
        for i in (0, 1, 127):
            angle = value * math.exp(-math.log(10000) * i / 128)
            assert out[row, i].item() == pytest.approx(math.cos(angle), abs=1e-4)
            assert out[row, 128 + i].item() == pytest.approx(math.sin(angle), abs=1e-4)


def test_sinusoid_works_in_fp32_and_returns_the_input_dtype() -> None:
    values = torch.tensor([752.0]).bfloat16()
    assert torch.equal(
        sinusoidal_embedding(values, 8), sinusoidal_embedding(values.float(), 8).bfloat16()
    )


def test_sinusoid_refuses_other_shapes() -> None:
    with pytest.raises(ValueError, match=r"must be 1-D, got shape \(2, 1\)"):
        sinusoidal_embedding(torch.zeros(2, 1), 8)
    with pytest.raises(ValueError, match="channels=7 must be even"):
        sinusoidal_embedding(torch.zeros(2), 7)


def test_embedders_have_the_stored_names() -> None:
    kw = {"dtype": torch.float32, "device": None}
    names = {"in_layer.weight", "in_layer.bias", "out_layer.weight", "out_layer.bias"}
    assert set(MLPEmbedder(4, 8, **kw).state_dict()) == names  # type: ignore[arg-type]
    expected = {f"time_embedding.{name}" for name in names}
    assert set(TimestepEmbedding(4, 8, **kw).state_dict()) == expected  # type: ignore[arg-type]


def test_building_a_plain_linear_draws_no_random_number() -> None:
    before = torch.get_rng_state()
    MLPEmbedder(4, 8, dtype=torch.float32, device=None)
    assert torch.equal(before, torch.get_rng_state())


def test_rms_norm_in_bf16_rounds_once_also_under_autocast() -> None:
    norm = RMSNorm(16, 1e-6, dtype=torch.bfloat16)
    norm.weight.data.copy_(torch.rand(16) + 0.5)
    x = (3 * torch.randn(5, 16)).bfloat16()
    exact = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt()
    expected = (exact * norm.weight.double()).bfloat16()
    assert (norm(x) == expected).float().mean() > 0.98
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert norm(x).dtype == torch.bfloat16


def test_modulation_order_and_formula() -> None:
    kw = {"dtype": torch.float64, "device": None}
    adaln = AdaLNModulation(4, 6, **kw)  # type: ignore[arg-type]
    linear = adaln.adaLN_modulation[1]
    linear.weight.data.zero_()
    linear.bias.data.copy_(torch.arange(24))
    chunks = adaln(torch.randn(2, 4, dtype=torch.float64))
    assert [chunk[0, 0].item() for chunk in chunks] == [0, 4, 8, 12, 16, 20]
    x, shift, scale = (
        torch.randn(shape, dtype=torch.float64) for shape in ((5, 2, 4), (2, 4), (2, 4))
    )
    centred = x - x.mean(-1, keepdim=True)
    normal = centred / (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    expected = normal * (1 + scale) + shift
    torch.testing.assert_close(layer_norm_modulate(x, shift, scale, 1e-6), expected)
    names = [name for name, _ in AdaLNContinuous(4, **kw).named_parameters()]  # type: ignore[arg-type]
    assert names == ["adaLN_modulation.1.weight", "adaLN_modulation.1.bias"]


def test_zero_gate_keeps_the_residual() -> None:
    x, update = torch.randn(5, 2, 4), torch.randn(5, 2, 4)
    assert torch.equal(gated_residual(x, torch.zeros(2, 4), update), x)
    torch.testing.assert_close(gated_residual(x, torch.full((2, 4), 0.5), update), x + update / 2)
