# SPDX-License-Identifier: Apache-2.0
"""Flux's own encoders from local folders: tiny random models, the real libraries."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from PIL import Image

from mxflux.data import DataError
from mxflux.data.cli import main
from mxflux.data.encoders.codec import codec_from, text_encoder_from
from mxflux.data.shards import read_description

if TYPE_CHECKING:
    from pathlib import Path

# Both libraries deprecate their own names between releases.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
WORDS = {"<pad>": 0, "</s>": 1, "<unk>": 2, "a": 3, "cat": 4}


@pytest.fixture(scope="module")
def vae(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny AutoencoderKL with Flux's layout and numbers."""
    diffusers = pytest.importorskip("diffusers", reason="AutoencoderKL is diffusers' class")
    torch.manual_seed(0)
    model = diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(4, 4, 4, 4),
        layers_per_block=1,
        norm_num_groups=2,
        latent_channels=16,
        scaling_factor=0.3611,
        shift_factor=0.1159,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )
    folder = tmp_path_factory.mktemp("pipeline") / "vae"
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny CLIP text model and T5 encoder, each with its tokenizer beside it."""
    transformers = pytest.importorskip(
        "transformers", reason="CLIP and T5 are transformers' models"
    )
    import tokenizers

    root = tmp_path_factory.mktemp("pipeline")
    torch.manual_seed(0)
    clip = transformers.CLIPTextConfig(
        vocab_size=8, hidden_size=12, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=77, eos_token_id=1, pad_token_id=0,
        bos_token_id=2,
    )  # fmt: skip
    t5 = transformers.T5Config(
        vocab_size=8, d_model=10, d_kv=5, d_ff=16, num_layers=1, num_heads=2, pad_token_id=0
    )
    transformers.CLIPTextModel(clip).save_pretrained(root / "text_encoder")
    transformers.T5EncoderModel(t5).save_pretrained(root / "text_encoder_2")
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="<unk>"))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    raw.post_processor = tokenizers.processors.TemplateProcessing("$A </s>", None, [("</s>", 1)])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    for name in ("tokenizer", "tokenizer_2"):
        fast.save_pretrained(root / name)
    return root / "text_encoder", root / "text_encoder_2"


def test_a_vae_scales_shifts_and_undoes_both(vae: Path) -> None:
    from diffusers import AutoencoderKL

    codec = codec_from({}, vae=str(vae))
    pictures = torch.rand(2, 3, 32, 48) * 2 - 1
    latents = codec.encode(pictures, ("latents",))["latents"]
    assert tuple(latents.shape) == (2, 16, 4, 6)
    raw = codec.encode(pictures, ("mean", "logvar"))
    torch.testing.assert_close(latents, (raw["mean"] - 0.1159) * 0.3611)
    model = AutoencoderKL.from_pretrained(vae)
    expected = model.decode(raw["mean"]).sample
    torch.testing.assert_close(codec.decode(latents), expected, rtol=1e-4, atol=1e-4)
    again = codec_from({"encoder": codec.describe()})
    assert torch.equal(again.decode(latents), codec.decode(latents))


def test_clip_and_t5_see_their_full_length(texts: tuple[Path, Path]) -> None:
    from transformers import CLIPTextModel, T5EncoderModel

    clip, t5 = texts
    encoder = text_encoder_from({}, (6, 10, 12), clip=str(clip), t5=str(t5))
    prompt, pooled = encoder.encode("a cat")
    assert (tuple(prompt.shape), tuple(pooled.shape)) == ((6, 10), (12,))
    ids = torch.tensor([[3, 4, 1, 0, 0, 0]])
    with torch.no_grad():
        expected = T5EncoderModel.from_pretrained(t5)(input_ids=ids).last_hidden_state[0]
        long = torch.nn.functional.pad(ids, (0, 71))
        expected_pooled = CLIPTextModel.from_pretrained(clip)(input_ids=long).pooler_output[0]
    torch.testing.assert_close(prompt, expected)
    torch.testing.assert_close(pooled, expected_pooled)


def test_pictures_are_encoded_with_them(
    vae: Path, texts: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("cat", "unknown"):
        Image.new("RGB", (40, 32), (200, 40, 90)).save(tmp_path / f"{name}.png")
        (tmp_path / f"{name}.txt").write_text(f"a {name}")
    folders = [f"--vae={vae}", f"--clip={texts[0]}", f"--t5={texts[1]}", "--encoder=diffusers"]
    sizes = ["--image-size=32", "--text-length=6", "--latents=resample"]
    out = tmp_path / "set"
    assert main(["encode", *folders, *sizes, str(tmp_path), str(out)]) == 0
    assert "data.vae_scale: 0.3611, data.vae_shift: 0.1159" in capsys.readouterr().out
    assert main(["check", "--context-dim=10", "--vec-in-dim=12", *sizes, str(out)]) == 0
    described = read_description(out)["encoder"]
    assert {"name", "vae", "clip", "t5"} <= described.keys()
    assert text_encoder_from({"encoder": described}, (6, 10, 12)).encode("a cat")[1].any()


@pytest.mark.parametrize("library", ["diffusers", "transformers"])
def test_a_missing_library_is_named_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DataError, match=rf"needs the package {library}: pip install {library}"):
        if library == "diffusers":
            codec_from({}, vae="x")
        else:
            text_encoder_from({}, (1, 1, 1), clip="x", t5="y")


def test_folders_that_are_no_models(vae: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no AutoencoderKL, config.json is not in it"):
        codec_from({}, vae=str(tmp_path))
    config: dict[str, Any] = json.loads((vae / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match=r"cannot be loaded as AutoencoderKL"):
        codec_from({}, vae=str(tmp_path))
