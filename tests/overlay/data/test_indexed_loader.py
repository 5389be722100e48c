# SPDX-License-Identifier: Apache-2.0
"""Mock data and the digits: the same samples for every number of ranks, and where they continue."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from mxflux.data import DataError, DataSettings, build_loaders, empty_encodings
from mxflux.data.digits import (
    DigitSamples,
    caption,
    digit_encoders,
    enlarge,
    load_digits,
    validation_mask,
)


def digits(**changes: Any) -> DataSettings:
    values: dict[str, Any] = {
        "kind": "digits", "micro_batch_size": 8, "seed": 3, "image_size": 64, "text_length": 4,
        "context_dim": 32, "vec_in_dim": 32,
    }  # fmt: skip
    return DataSettings(**{**values, **changes})


def mock(**changes: Any) -> DataSettings:
    sizes = {"image_size": 32, "latent_channels": 4, "text_length": 3, "context_dim": 5}
    return DataSettings(**{**vars(digits()), "kind": "mock", "vec_in_dim": 2, **sizes, **changes})


def take(settings: DataSettings, count: int, rank: int = 0, world: int = 1) -> list[dict[str, Any]]:
    loader = build_loaders(settings, rank=rank, world_size=world, training=True)
    return [next(loader) for _ in range(count)]


def rows(batches: list[dict[str, Any]]) -> list[float]:
    key = "latents" if "latents" in batches[0] else "mean"
    return [float(row.sum()) for batch in batches for row in batch[key]]


@pytest.mark.parametrize("settings", [digits(), mock(), mock(mock_samples=20)])
def test_a_global_batch_is_the_same_for_every_number_of_ranks(settings: DataSettings) -> None:
    alone = rows(take(settings, 8))
    shared = [take(settings, 4, rank, 2) for rank in (0, 1)]
    for step in range(4):
        both = rows([shared[0][step]]) + rows([shared[1][step]])
        assert both == alone[16 * step : 16 * step + 16]


def test_training_repeats_in_a_new_order() -> None:
    seen = rows(take(mock(mock_samples=24, micro_batch_size=6), 12))
    first, second = seen[:24], seen[24:48]
    assert Counter(first) == Counter(second)
    assert len(set(first)) == 24
    assert first != second
    assert rows(take(mock(mock_samples=24, micro_batch_size=6, seed=4), 4)) != first
    orders = [rows(take(digits(seed=seed), 4)) for seed in (3, 4, 3)]
    assert orders[0] == orders[2] != orders[1]


def test_a_restored_loader_continues_and_refuses_another_run() -> None:
    loader = build_loaders(digits(), rank=1, world_size=2, training=True)
    for _ in range(5):
        next(loader)
    state = loader.state_dict()
    expected = rows([next(loader) for _ in range(3)])
    resumed = build_loaders(digits(), rank=1, world_size=2, training=True)
    resumed.load_state_dict(state)
    assert resumed.observed == 40
    assert rows([next(resumed) for _ in range(3)]) == expected
    other = build_loaders(digits(seed=4), rank=1, world_size=2, training=True)
    with pytest.raises(DataError, match=r"seed: saved with 3, this run has 4"):
        other.load_state_dict(state)
    with pytest.raises(DataError, match=r"rank: saved with 1, this run has 0"):
        build_loaders(digits(), rank=0, world_size=2, training=True).load_state_dict(state)


def test_two_ranks_continue_as_one() -> None:
    loaders = [build_loaders(digits(), rank=rank, world_size=2, training=True) for rank in (0, 1)]
    for loader in loaders:
        for _ in range(3):
            next(loader)
    states = [loader.state_dict() for loader in loaders]
    expected = rows([next(loader) for loader in loaders])
    alone = build_loaders(digits(), rank=0, world_size=1, training=True)
    alone.load_resharded(states)
    assert rows([next(alone), next(alone)]) == expected
    with pytest.raises(DataError, match=r"different numbers: \[48, 64\]"):
        alone.load_resharded([states[0], {**states[1], "consumed": 64}])
    three = build_loaders(digits(micro_batch_size=7), rank=0, world_size=3, training=True)
    with pytest.raises(DataError, match=r"consumed 48 samples, no multiple of .* 3 rank\(s\) x"):
        three.load_resharded(states)


def test_validation_is_finite_in_order_and_keeps_its_timesteps() -> None:
    loaders = [
        build_loaders(digits(eval_micro_batch_size=32), rank=rank, world_size=2, training=False)
        for rank in (0, 1)
    ]
    batches = [list(loader) for loader in loaders]
    assert [loader.samples for loader in loaders] == [128, 96]
    assert [loader.observed for loader in loaders] == [128, 96]
    levels = Counter(torch.cat([b["timestep"] for part in batches for b in part]).tolist())
    assert levels == dict.fromkeys(range(8), 28)
    with pytest.raises(DataError, match=r"rank 8 of 9 gets no validation sample"):
        build_loaders(digits(eval_micro_batch_size=32), rank=8, world_size=9, training=False)


def test_validation_goes_on_for_a_masked_remainder() -> None:
    settings = digits(micro_batch_size=100, endless_validation=True)
    loader = build_loaders(settings, rank=0, world_size=1, training=False)
    batches = [next(loader) for _ in range(3)]
    assert loader.samples == 224
    assert torch.equal(batches[2]["latents"][24:], batches[0]["latents"][:76])


def test_mock_is_seeded_by_sample_and_apart_from_validation() -> None:
    resample = mock(vae_latent_mode="resample")
    batch = take(resample, 1)[0]
    own = torch.Generator().manual_seed(3 + 2)
    assert torch.equal(batch["mean"][2], torch.randn(4, 4, 4, generator=own))
    assert torch.equal(batch["logvar"][2], torch.randn(4, 4, 4, generator=own))
    assert "timestep" not in batch
    validation = build_loaders(resample, rank=0, world_size=1, training=False)
    first = next(validation)
    assert first["timestep"].tolist() == list(range(8))
    assert not torch.equal(first["mean"], batch["mean"])
    assert validation.samples is None


def test_digits_are_split_for_good_and_decode_to_what_they_were() -> None:
    pictures, labels = load_digits()
    mask = validation_mask(len(labels))
    assert (int(mask.sum()), int((~mask).sum())) == (224, 1573)
    samples = DigitSamples(digits(), validation=True)
    assert samples.labels[:10] == labels[mask][:10].tolist()
    blocks, words = digit_encoders(digits())
    original = enlarge(pictures[torch.from_numpy(mask)], 64)
    decoded = blocks.decode(torch.stack([samples[i]["latents"] for i in range(224)]))
    noise = (decoded - original).square().mean()
    assert 10 * torch.log10(4 / noise) > 40  # dB: nothing a person could see
    assert torch.equal(samples[0]["prompt_embeds"], words.encode(f"digit {samples.labels[0]}")[0])
    prompts = [words.encode(caption(digit))[0] for digit in range(10)]
    assert len({tuple(prompt.flatten().tolist()) for prompt in prompts}) == 10


def test_what_digits_cannot_do_is_named() -> None:
    with pytest.raises(DataError, match=r"data.kind=digits has latents, not mean and logvar"):
        build_loaders(digits(vae_latent_mode="resample"), rank=0, world_size=1, training=True)
    with pytest.raises(DataError, match=r"data.text_length=2: .* have 3 tokens"):
        build_loaders(digits(text_length=2), rank=0, world_size=1, training=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "images"}, "data.kind='images' is unknown"),
        ({"image_size": 72}, "data.image_size=72 must be a multiple of 16"),
        ({"vae_latent_mode": "sampled"}, "data.vae_latent_mode='sampled' is unknown"),
        ({"text_length": 0}, "text_length=0 must be positive"),
    ],
)
def test_settings_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        digits(**changes)
    with pytest.raises(DataError, match=r"rank 2 is not one of 2"):
        build_loaders(digits(), rank=2, world_size=2, training=True)


def test_empty_encodings_go_with_the_data() -> None:
    words = digit_encoders(digits())[1]
    empty = empty_encodings(digits())
    assert torch.equal(empty.t5[0], words.encode("")[0])
    assert empty.t5[0, 0].any()
    assert not empty.t5[0, 1:].any()
    assert tuple(empty_encodings(mock()).t5.shape) == (1, 3, 5)
    with pytest.raises(FileNotFoundError, match=r"nowhere lacks t5_empty.npy"):
        empty_encodings(mock(), "nowhere")
