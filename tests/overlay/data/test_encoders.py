# SPDX-License-Identifier: Apache-2.0
"""The built-in encoders: orthonormal, invertible, the same bits everywhere."""

from __future__ import annotations

import hashlib

import pytest
import torch

from mxflux.data import DataError
from mxflux.data.encoders.blocks import BlockTransform
from mxflux.data.encoders.codec import BlockCodec, codec_from, text_encoder_from
from mxflux.data.encoders.words import HashedWords, tokens


@pytest.mark.parametrize(("channels", "colour"), [(64, "gray"), (192, "rgb")])
def test_all_coefficients_give_the_picture_back(channels: int, colour: str) -> None:
    transform = BlockTransform(channels, colour)
    pictures = torch.rand(2, transform.planes, 16, 24) * 2 - 1
    latents = transform.encode(pictures)
    assert tuple(latents.shape) == (2, channels, 2, 3)
    torch.testing.assert_close(transform.decode(latents), pictures, rtol=0, atol=2e-6)


@pytest.mark.parametrize(("channels", "colour"), [(16, "gray"), (16, "rgb"), (3, "rgb")])
def test_few_coefficients_are_a_projection(channels: int, colour: str) -> None:
    transform = BlockTransform(channels, colour)
    latents = torch.randn(2, channels, 2, 2)
    torch.testing.assert_close(
        transform.encode(transform.decode(latents)), latents, rtol=1e-5, atol=1e-5
    )
    flat = torch.full((1, transform.planes, 8, 8), 0.25)
    torch.testing.assert_close(transform.decode(transform.encode(flat)), flat, rtol=0, atol=1e-6)


def test_natural_pictures_keep_their_look_and_latents_like_sizes() -> None:
    sklearn = pytest.importorskip("sklearn.datasets", reason="scikit-learn ships the photographs")
    photo = torch.from_numpy(sklearn.load_sample_images().images[1].copy()).float()
    picture = photo[:416, :640].permute(2, 0, 1)[None] / 127.5 - 1
    transform = BlockTransform()
    latents = transform.encode(picture)
    noise = (transform.decode(latents) - picture).square().mean()
    assert 10 * torch.log10(4 / noise) > 30
    spread = latents.std((0, 2, 3))
    assert spread[:10].max() / spread[:10].min() < 6


def test_what_the_block_transform_refuses() -> None:
    with pytest.raises(DataError, match=r"colour='cmyk' is unknown"):
        BlockTransform(16, "cmyk")
    with pytest.raises(
        DataError, match=r"channels=65: blocks of gray pictures have between 1 and 64"
    ):
        BlockTransform(65, "gray")
    with pytest.raises(DataError, match=r"expected 3 planes \(rgb\) and sides that are multiples"):
        BlockTransform().encode(torch.zeros(1, 3, 12, 8))
    with pytest.raises(DataError, match=r"latents have 4 channels, the encoder 16"):
        BlockTransform().decode(torch.zeros(1, 4, 2, 2))


def test_words_have_the_same_bits_on_every_machine() -> None:
    prompt, pooled = HashedWords(6, 40, 24).encode("A dog, a cat")
    values = torch.cat([prompt.flatten().sign(), pooled]).numpy().tobytes()
    assert hashlib.sha256(values).hexdigest()[:16] == "8137211cf6045a2c"
    assert tuple(prompt.shape) == (6, 40)
    assert tokens("A dog, a cat") == ["a", "dog", ",", "a", "cat"]


def test_order_and_length_count() -> None:
    words = HashedWords(8, 64, 16)
    one, two = words.encode("dog bites man"), words.encode("man bites dog")
    assert not torch.equal(one[0], two[0])
    assert not one[0][4:].any()
    cut = HashedWords(3, 64, 16).encode("dog bites man")[0]
    assert torch.equal(cut[:2], one[0][:2])
    end = HashedWords(3, 64, 16).encode("x y")[0][2]
    assert torch.equal(cut[2], end)
    with pytest.raises(DataError, match=r"context_dim=0 must be positive"):
        HashedWords(3, 0, 16)


def test_a_codec_is_built_again_from_its_description() -> None:
    codec = BlockCodec(BlockTransform(16, "gray"))
    again = codec_from({"encoder": codec.describe()})
    pictures = torch.rand(1, 3, 16, 16) * 2 - 1
    latents = codec.encode(pictures, ("latents",))["latents"]
    assert torch.equal(again.decode(latents), codec.decode(latents))
    spread = codec.encode(pictures, ("mean", "logvar"))
    assert torch.equal(spread["mean"], latents)
    assert (spread["logvar"] < -20).all()
    with pytest.raises(DataError, match=r"made by something that left no description: .*--vae"):
        codec_from({})
    with pytest.raises(DataError, match=r"give both --clip and --t5"):
        text_encoder_from({}, (1, 1, 1), clip="x")
    with pytest.raises(DataError, match=r"which text encoders made the data is not known"):
        text_encoder_from({}, (1, 1, 1))
