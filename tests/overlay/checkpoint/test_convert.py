# SPDX-License-Identifier: Apache-2.0
"""Conversion between native, diffusers and BFL layouts: exact, complete, and refused when not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from native_folder import TINY, native_state, write_native

from mxflux.checkpoint.convert import convert
from mxflux.checkpoint.errors import CheckpointError
from mxflux.checkpoint.manifest import MANIFEST_NAME, read_manifest
from mxflux.checkpoint.native_view import NativeView, layout_links
from mxflux.checkpoint.safetensors_file import SafetensorsFile, TensorInfo, write_safetensors
from mxflux.checkpoint.sources import ARCHITECTURE_KEY, open_checkpoint
from mxflux.flux.architecture import FLUX_12B, FluxArchitecture

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def native(tmp_path: Path) -> Path:
    return write_native(tmp_path / "native", TINY, native_state(TINY))


@pytest.mark.parametrize("layout", ["diffusers", "bfl"])
@pytest.mark.parametrize("shard", [10_000_000, 3_000])
def test_round_trip_is_bit_exact_and_hashes_agree(
    native: Path, tmp_path: Path, layout: str, shard: int
) -> None:
    foreign = tmp_path / ("foreign.safetensors" if layout == "bfl" else "foreign")
    there = convert(native, foreign, to=layout, max_shard_bytes=shard)
    back = convert(foreign, tmp_path / "back", to="mxflux", max_shard_bytes=shard)
    view = NativeView(open_checkpoint(tmp_path / "back"))
    for name, tensor in native_state(TINY).items():
        assert torch.equal(view.load(name), tensor), name
    again = convert(native, tmp_path / "again", to="mxflux")
    assert back.tensors == again.tensors
    assert len(there.tensors) == sum(len(link.foreign) for link in layout_links(layout, TINY))


@pytest.mark.parametrize("layout", ["diffusers", "bfl"])
def test_links_use_every_native_tensor_once(layout: str) -> None:
    links = layout_links(layout, FLUX_12B)
    native = [name for link in links for name in link.native]
    foreign = [name for link in links for name in link.foreign]
    assert sorted(native) == sorted(FLUX_12B.parameter_shapes())
    assert len(set(foreign)) == len(foreign)


def test_bfl_swaps_the_halves_of_the_output_modulation_and_diffusers_does_not(
    native: Path, tmp_path: Path
) -> None:
    convert(native, tmp_path / "flux.safetensors", to="bfl")
    convert(native, tmp_path / "hf", to="diffusers")
    scale, shift = native_state(TINY)["norm_out.adaLN_modulation.1.weight"].chunk(2)
    bfl = SafetensorsFile(tmp_path / "flux.safetensors")
    assert torch.equal(bfl.load("final_layer.adaLN_modulation.1.weight"), torch.cat((shift, scale)))
    hf = SafetensorsFile(tmp_path / "hf" / "diffusion_pytorch_model.safetensors")
    assert torch.equal(hf.load("norm_out.linear.weight"), torch.cat((scale, shift)))


def test_fused_rows_are_per_head_q_k_v(native: Path, tmp_path: Path) -> None:
    convert(native, tmp_path / "hf", to="diffusers")
    hf = SafetensorsFile(tmp_path / "hf" / "diffusion_pytorch_model.safetensors")
    fused = native_state(TINY)["transformer.layers.0.self_attention.linear_qkv.weight"]
    head_dim = TINY.head_dim
    for part, name in enumerate(("to_q", "to_k", "to_v")):
        separate = hf.load(f"transformer_blocks.0.attn.{name}.weight")
        for head in range(TINY.num_attention_heads):
            start = (3 * head + part) * head_dim
            assert torch.equal(
                separate[head * head_dim : (head + 1) * head_dim], fused[start : start + head_dim]
            )


def test_single_projection_columns_and_its_one_bias(native: Path, tmp_path: Path) -> None:
    convert(native, tmp_path / "flux.safetensors", to="bfl")
    state, bfl = native_state(TINY), SafetensorsFile(tmp_path / "flux.safetensors")
    linear2 = bfl.load("single_blocks.0.linear2.weight")
    prefix = "transformer.layers.2"
    assert torch.equal(linear2[:, :16], state[f"{prefix}.self_attention.linear_proj.weight"])
    assert torch.equal(linear2[:, 16:], state[f"{prefix}.mlp.linear_fc2.weight"])
    bias = bfl.load("single_blocks.0.linear2.bias")
    assert torch.equal(bias, state[f"{prefix}.mlp.linear_fc2.bias"])


def test_bfl_without_recorded_architecture_is_inferred_or_asks(
    native: Path, tmp_path: Path
) -> None:
    convert(native, tmp_path / "flux.safetensors", to="bfl")
    file = SafetensorsFile(tmp_path / "flux.safetensors")
    assert ARCHITECTURE_KEY in file.metadata
    bare = tmp_path / "bare.safetensors"
    write_safetensors(bare, file.tensors, ((name, file.load(name)) for name in file.tensors))
    with pytest.raises(CheckpointError, match=r"heads are 8 wide.*give the architecture"):
        open_checkpoint(bare)
    assert open_checkpoint(bare, TINY).architecture == TINY
    with pytest.raises(CheckpointError, match=r"num_single_layers: 3 != 4"):
        open_checkpoint(bare, replace(TINY, num_single_layers=4))


def test_refusal_lists_every_difference(tmp_path: Path) -> None:
    state = native_state(TINY)
    del state["proj_out.bias"]
    state["proj_in.bias"] = torch.zeros(3, dtype=torch.bfloat16)
    state["img_embed.bias"] = torch.zeros(17, dtype=torch.bfloat16)
    path = write_native(tmp_path / "bad", TINY, state)
    with pytest.raises(CheckpointError) as caught:
        convert(path, tmp_path / "out", to="diffusers")
    assert caught.value.problems == (
        "missing: proj_out.bias (4,)",
        "unexpected: proj_in.bias (3,)",
        "shape: img_embed.bias is (17,), expected (16,)",
    )
    assert not (tmp_path / "out").exists()


def test_guidance_difference_is_named(native: Path) -> None:
    with pytest.raises(CheckpointError, match="guidance_embed: True != False"):
        open_checkpoint(native, replace(TINY, guidance_embed=False))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_weights_are_refused_and_nothing_is_left(tmp_path: Path, value: float) -> None:
    state = native_state(TINY)
    state["proj_out.weight"][1, 2] = value
    path = write_native(tmp_path / "bad", TINY, state)
    with pytest.raises(CheckpointError, match=r"proj_out.weight: 1 of 64 values are NaN"):
        convert(path, tmp_path / "out", to="diffusers")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad"]


def test_mixed_dtypes_that_would_be_fused_are_refused(native: Path, tmp_path: Path) -> None:
    convert(native, tmp_path / "hf", to="diffusers")
    file = SafetensorsFile(tmp_path / "hf" / "diffusion_pytorch_model.safetensors")
    name = "transformer_blocks.0.attn.to_q.weight"
    state = {key: file.load(key).clone() for key in file.tensors}
    state = {name: state.pop(name).float(), **state}
    infos = {key: TensorInfo(tuple(t.shape), t.dtype) for key, t in state.items()}
    file.path.unlink()
    write_safetensors(file.path, infos, state.items())
    with pytest.raises(CheckpointError, match=r"mixed dtypes .*bfloat16.*float32.*to_q.weight"):
        NativeView(open_checkpoint(tmp_path / "hf"))


@pytest.mark.parametrize(
    ("arch", "layout", "message"),
    [
        (replace(TINY, ffn_hidden_size=48), "diffusers", "ffn_hidden_size=48"),
        (replace(TINY, theta=5000), "diffusers", "theta=5000"),
        (replace(TINY, single_block_bias=False), "bfl", "single_block_bias=False"),
    ],
)
def test_what_a_layout_cannot_express_is_refused(
    tmp_path: Path, arch: FluxArchitecture, layout: str, message: str
) -> None:
    path = write_native(tmp_path / "native", arch, native_state(arch))
    with pytest.raises(ValueError, match=message):
        convert(path, tmp_path / "out.safetensors", to=layout)


def test_unknown_layout_and_existing_destination(native: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="to='hf' is unknown"):
        convert(native, tmp_path / "out", to="hf")
    with pytest.raises(FileExistsError, match="native exists"):
        convert(native, native, to="diffusers")


def test_folders_that_are_no_flux_transformer(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"neither a file nor a folder with config.json"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text('{"_class_name": "SD3Transformer2DModel"}')
    with pytest.raises(CheckpointError, match="'SD3Transformer2DModel'"):
        open_checkpoint(tmp_path)
    (tmp_path / "model_index.json").write_text("{}")
    with pytest.raises(CheckpointError, match="give its transformer"):
        open_checkpoint(tmp_path)


def test_missing_shard_is_named(native: Path, tmp_path: Path) -> None:
    convert(native, tmp_path / "hf", to="diffusers", max_shard_bytes=3000)
    shard = sorted((tmp_path / "hf").glob("*-00002-of-*.safetensors"))[0]
    shard.unlink()
    with pytest.raises(CheckpointError, match=shard.name):
        open_checkpoint(tmp_path / "hf")


def test_manifest_is_written_beside_the_tensors(native: Path, tmp_path: Path) -> None:
    returned = convert(native, tmp_path / "hf", to="diffusers", max_shard_bytes=3000)
    read = read_manifest(tmp_path / "hf" / MANIFEST_NAME)
    assert read == returned
    files = {p.name for p in (tmp_path / "hf").iterdir()} - {MANIFEST_NAME}
    assert set(read.files) == files
