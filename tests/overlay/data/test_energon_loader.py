# SPDX-License-Identifier: Apache-2.0
"""The real Energon loader: order, shares, resumption, and every fault an error."""

from __future__ import annotations

import json
import random
import threading
from typing import TYPE_CHECKING, Any

import data_faults as faults
import numpy as np
import pytest
import torch

from mxflux.data import DataError, DataSettings, build_loaders
from mxflux.data.mock import MockSamples
from mxflux.data.parts import encode_part
from mxflux.data.state_bytes import loads

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mxflux.data import Loader

Settings = "Callable[..., DataSettings]"

# Energon starts loader processes by fork, also from a process with threads.
pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)


def loader(settings: DataSettings, rank: int = 0, world: int = 1, training: bool = True) -> Loader:
    return build_loaders(settings, rank=rank, world_size=world, training=training)


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def fingerprints(batches: Any) -> list[float]:
    return [float(row.float().sum()) for batch in batches for row in batch["latents"]]


def test_validation_is_everything_once_in_order_with_its_timesteps(
    settings: Callable[..., DataSettings],
) -> None:
    found = loader(settings(), training=False)
    batches = list(found)
    assert [len(batch["timestep"]) for batch in batches] == [4] * 6 + [1]
    assert torch.cat([b["timestep"] for b in batches]).tolist() == [i % 8 for i in range(25)]
    source = MockSamples(settings().shape, ("latents",), 0, 25, validation=True)
    expected = torch.stack([source[i]["latents"] for i in range(25)]).bfloat16()
    assert torch.equal(torch.cat([b["latents"] for b in batches]), expected)
    assert found.samples == found.observed == 25
    assert same(next(loader(settings(), training=False)), batches[0])


def test_no_and_one_process_read_the_same_validation_and_two_do_not(
    settings: Callable[..., DataSettings],
) -> None:
    for rank in (0, 1):
        none, one, two = (
            list(loader(settings(val_num_workers=n), rank, 2, training=False)) for n in (0, 1, 2)
        )
        assert all(same(a, b) for a, b in zip(none, one, strict=True))
        assert fingerprints(none) != fingerprints(two)
    shares = [loader(settings(), rank, 2, training=False).samples for rank in (0, 1)]
    assert shares == [13, 12]


@pytest.mark.parametrize("workers", [0, 1])
def test_training_and_a_prefetched_evaluation_read_at_the_same_time(
    settings: Callable[..., DataSettings], workers: int
) -> None:
    """Without loader processes Energon keeps its position in the process, for one reader."""
    evaluations = 5 if workers == 0 else 1
    train = loader(settings())
    expected = fingerprints(next(train) for _ in range(60))
    validation = settings(val_num_workers=workers)
    evaluation = fingerprints(loader(validation, training=False))
    train, found, errors = loader(settings()), [], []

    def evaluate() -> None:
        try:
            found.extend(
                fingerprints(loader(validation, training=False)) for _ in range(evaluations)
            )
        except DataError as error:
            errors.append(error)

    thread = threading.Thread(target=evaluate)
    thread.start()
    try:
        assert fingerprints(next(train) for _ in range(60)) == expected
    finally:
        thread.join()
    assert not errors
    assert found == [evaluation] * evaluations


def test_ranks_share_the_validation_split_without_overlap(
    settings: Callable[..., DataSettings],
) -> None:
    whole = fingerprints(loader(settings(), training=False))
    parts = [fingerprints(loader(settings(), rank, 3, training=False)) for rank in range(3)]
    assert [row for part in parts for row in part] == whole


def test_endless_validation_starts_anew(settings: Callable[..., DataSettings]) -> None:
    found = loader(settings(endless_validation=True), 1, 2, training=False)
    first = [next(found) for _ in range(3)]
    again = [next(found) for _ in range(3)]
    assert all(same(a, b) for a, b in zip(first, again, strict=True))
    assert found.samples == 12


def test_training_is_endless_shuffled_and_seeded(settings: Callable[..., DataSettings]) -> None:
    small = settings(max_samples_per_sequence=2)
    epochs = fingerprints(b for b, _ in zip(loader(small), range(25), strict=False))
    assert sorted(epochs[:50]) == sorted(epochs[50:])
    assert epochs[:50] != epochs[50:]
    again = fingerprints(b for b, _ in zip(loader(small), range(25), strict=False))
    assert again == epochs
    other = settings(max_samples_per_sequence=2, seed=2)
    assert fingerprints(b for b, _ in zip(loader(other), range(25), strict=False)) != epochs


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("buffer", [None, 8])
def test_a_restored_loader_continues_bit_for_bit(
    settings: Callable[..., DataSettings], workers: int, buffer: int | None
) -> None:
    wanted = settings(num_workers=workers, shuffle_buffer_size=buffer, max_samples_per_sequence=5)
    straight = loader(wanted, 1, 2)
    for count in (7, 20):
        for _ in range(count):
            next(straight)
        state = straight.state_dict()
        expected = [next(straight) for _ in range(15)]
        resumed = loader(wanted, 1, 2)
        resumed.load_state_dict(state)
        assert all(same(next(resumed), batch) for batch in expected)
        assert resumed.observed == straight.observed
        resumed.close()
    straight.close()


def test_reading_draws_from_no_global_generator(settings: Callable[..., DataSettings]) -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # type: ignore[union-attr]
    for training, workers in ((True, 0), (True, 1), (False, 0), (False, 1)):
        found = loader(settings(num_workers=workers, val_num_workers=workers), training=training)
        next(found)
        next(found)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # type: ignore[index]
    assert random.getstate() == before[2]


def test_a_state_of_another_run_is_refused(settings: Callable[..., DataSettings]) -> None:
    source = loader(settings(), 0, 2)
    next(source)
    state = source.state_dict()
    with pytest.raises(DataError, match=r"seed: saved with 1, this run has 2"):
        loader(settings(seed=2), 0, 2).load_state_dict(state)
    with pytest.raises(DataError, match=r"rank: saved with 0, this run has 1"):
        loader(settings(), 1, 2).load_state_dict(state)
    with pytest.raises(DataError, match=r"workers: saved with 0, this run has 1"):
        loader(settings(num_workers=1), 0, 2).load_state_dict(state)
    with pytest.raises(DataError, match=r"restore its state before the first batch"):
        source.load_state_dict(state)
    with pytest.raises(DataError, match=r"belongs to 2 data-parallel rank\(s\), this run has 1"):
        loader(settings()).load_resharded([state, state])
    with pytest.raises(DataError, match=r"a validation loader has no state"):
        loader(settings(), training=False).state_dict()
    with pytest.raises(DataError, match=r"format None"):
        loader(settings()).load_state_dict({})


def test_state_bytes_run_no_code() -> None:
    with pytest.raises(DataError, match=r"names posix.system, which has no place there"):
        loads(b"cposix\nsystem\n(S'true'\ntR.")


# -- faults -----------------------------------------------------------------------------------


def read_damaged(
    settings: Callable[..., DataSettings], folder: Path, workers: int = 0, **changes: Any
) -> None:
    chosen = settings(path=str(folder), val_num_workers=workers, **changes)
    list(loader(chosen, training=False))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_missing_part_names_shard_sample_and_part(
    settings: Callable[..., DataSettings], dataset: Path, tmp_path: Path, workers: int
) -> None:
    folder = faults.copy_of(dataset, tmp_path)
    faults.rewrite(folder / "val-00000.tar", faults.without("val00000005.prompt_embeds.pth"))
    with pytest.raises(DataError) as caught:
        read_damaged(settings, folder, workers)
    message = str(caught.value)
    assert message.startswith(
        "val-00000.tar: sample val00000005 lacks prompt_embeds.pth; it has json, latents.pth, "
        "pooled_prompt_embeds.pth"
    )
    assert "Traceback" not in message


@pytest.mark.parametrize(
    ("part", "data", "message"),
    [
        (
            "prompt_embeds.pth",
            encode_part("x.pth", torch.zeros(7, 8)),
            (
                r"prompt_embeds.pth has shape \[7, 8\], expected \[6, 8\]: T5 length 7, "
                r"data.text_length is 6"
            ),
        ),
        ("latents.pth", encode_part("x.pth", torch.zeros(16, 5, 4)), "latent sizes must be even"),
        ("latents.pth", encode_part("x.pth", torch.zeros(16, 8, 4)), "data.image_size is 32"),
        ("latents.pth", encode_part("x.pth", torch.zeros(8, 4, 4)), "model.in_channels/4 is 16"),
        (
            "latents.pth",
            encode_part("x.pth", torch.zeros(16, 4, 4, dtype=torch.int64)),
            "latents.pth has dtype torch.int64",
        ),
        ("pooled_prompt_embeds.pth", encode_part("x.pth", torch.zeros(4)), "model.vec_in_dim is 5"),
        ("latents.pth", b"not a tensor", "latents.pth cannot be read as a tensor"),
        ("json", b'{"timestep": 8}', r"json timestep is 8, outside 0..7"),
        ("json", b'{"timestep": 1.5}', r"json timestep is 1.5, not an integer"),
        ("json", b"{", "json is not JSON"),
        ("json", b"{}", "only one has timestep"),
    ],
)
def test_a_wrong_part_names_the_setting(
    settings: Callable[..., DataSettings],
    dataset: Path,
    tmp_path: Path,
    part: str,
    data: bytes,
    message: str,
) -> None:
    folder = faults.copy_of(dataset, tmp_path)
    faults.rewrite(folder / "val-00000.tar", faults.replaced(f"val00000005.{part}", data))
    with pytest.raises(DataError, match=message) as caught:
        read_damaged(settings, folder)
    assert "val00000005" in str(caught.value)


def test_a_truncated_shard_is_an_error(
    settings: Callable[..., DataSettings], dataset: Path, tmp_path: Path
) -> None:
    folder = faults.copy_of(dataset, tmp_path)
    shard = folder / "val-00000.tar"
    shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])
    with pytest.raises(DataError, match=r"mxtree data check|val-00000.tar"):
        read_damaged(settings, folder)


def test_a_data_set_that_cannot_be_opened(
    settings: Callable[..., DataSettings], dataset: Path, tmp_path: Path
) -> None:
    for path in (None, "", "  "):
        with pytest.raises(DataError, match=r"data.path is not set: data.kind=energon needs"):
            loader(settings(path=path))
    with pytest.raises(DataError, match=r"data.path=.*/nowhere: there is no such folder"):
        loader(settings(path=str(tmp_path / "nowhere")))
    with pytest.raises(DataError, match=r"no Energon data set, .nv-meta/.info.json is missing"):
        loader(settings(path=str(tmp_path)))
    folder = faults.copy_of(dataset, tmp_path)
    (folder / "train-00001.tar").unlink()
    with pytest.raises(DataError, match=r"files are missing:\n  train-00001.tar"):
        loader(settings(path=str(folder)))
    split = folder / ".nv-meta" / "split.yaml"
    split.write_text(split.read_text().replace("val:", "test:"))
    with pytest.raises(DataError, match=r"no split 'val' with shards"):
        loader(settings(path=str(folder)), training=False)


def test_more_readers_than_samples_is_an_error(settings: Callable[..., DataSettings]) -> None:
    message = r"split 'val' has 25 sample\(s\) for 13 rank\(s\) with 2 .* each, 1 would have none"
    with pytest.raises(DataError, match=message):
        loader(settings(val_num_workers=2), 0, 13, training=False)


def test_an_unknown_encoding_is_named(
    settings: Callable[..., DataSettings], dataset: Path, tmp_path: Path
) -> None:
    folder = faults.copy_of(dataset, tmp_path)
    flavour = folder / ".nv-meta" / "dataset.yaml"
    flavour.write_text(flavour.read_text().replace("preencoded", "raw"))
    with pytest.raises(DataError, match=r"subflavors.encoding is 'raw': expected one of"):
        read_damaged(settings, folder)


def test_latents_of_the_other_mode_are_asked_for(settings: Callable[..., DataSettings]) -> None:
    with pytest.raises(DataError, match=r"lacks mean.pth, logvar.pth; .*'resample'"):
        next(loader(settings(vae_latent_mode="resample"), training=False))


def test_the_description_says_what_made_it(dataset: Path) -> None:
    values = json.loads((dataset / ".nv-meta" / "mxflux.json").read_text())
    assert values["encoder"] == {"name": "random", "seed": 0}
