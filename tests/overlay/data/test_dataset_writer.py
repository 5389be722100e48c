# SPDX-License-Identifier: Apache-2.0
"""Writing a data set: all or nothing, keys that Energon can tell apart, settings of a recipe."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
import torch

from mxflux.data import DataError, build_loaders, settings_of
from mxflux.data.shards import DatasetWriter, new_dataset, read_description
from mxflux.flux.architecture import FLUX_TINY
from mxflux.recipe.loading import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mxflux.data import DataSettings

SAMPLE = {"latents": torch.zeros(16, 2, 2), "prompt_embeds": torch.zeros(2, 2)}


@pytest.mark.parametrize("key", ["", "a.b", "a/b", "a\\b"])
def test_keys_that_energon_would_cut_apart(tmp_path: Path, key: str) -> None:
    with pytest.raises(DataError, match=r"a sample key must have no dot and no slash"):
        DatasetWriter(tmp_path).add("train", key, SAMPLE, {})


def test_a_key_is_taken_once_in_the_whole_data_set(tmp_path: Path) -> None:
    writer = DatasetWriter(tmp_path)
    writer.add("train", "a", SAMPLE, {})
    with pytest.raises(DataError, match=r"two samples have the key 'a'"):
        writer.add("val", "a", SAMPLE, {})
    writer.close()


def test_shards_are_filled_one_after_the_other(tmp_path: Path) -> None:
    writer = DatasetWriter(tmp_path, shard_size=2)
    for index in range(5):
        writer.add("train" if index != 1 else "val", str(index), SAMPLE, {})
    writer.close()
    assert writer.counts == {"train-00000.tar": 2, "val-00000.tar": 1, "train-00001.tar": 2}


def test_an_error_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    destination = tmp_path / "set"
    with (
        pytest.raises(KeyboardInterrupt),
        new_dataset(destination, empty=None, description={}) as writer,
    ):
        writer.add("train", "a", SAMPLE, {})
        raise KeyboardInterrupt
    with (
        pytest.raises(DataError, match=r"there is no sample to write"),
        new_dataset(destination, empty=None, description={}),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_missing_energon_is_named_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Callable[..., DataSettings]
) -> None:
    monkeypatch.setitem(sys.modules, "megatron.energon", None)
    message = r"need the package megatron-energon .*: pip install megatron-energon"
    with (
        pytest.raises(DataError, match=message),
        new_dataset(tmp_path / "set", empty=None, description={}),
    ):
        pass
    with pytest.raises(DataError, match=message):
        build_loaders(settings(), rank=0, world_size=1, training=True)


def test_a_description_of_another_format_is_refused(tmp_path: Path) -> None:
    assert read_description(tmp_path) == {}
    (tmp_path / ".nv-meta").mkdir()
    path = tmp_path / ".nv-meta" / "mxflux.json"
    path.write_text("{")
    with pytest.raises(DataError, match=r"mxflux.json: not JSON"):
        read_description(tmp_path)
    path.write_text(json.dumps({"format": 2}))
    with pytest.raises(DataError, match=r"this release reads format 1"):
        read_description(tmp_path)


RECIPE = """\
device: cpu
launch: {nproc_per_node: 1}
model: {preset: flux_tiny}
data:
  kind: energon
  path: somewhere
  num_workers: 5
  val_num_workers: 0
  prefetch_factor: 3
  max_samples_per_sequence: 7
  shuffle_buffer_size: 11
  vae_latent_mode: resample
  vae_scale: 0.5
  vae_shift: 0.25
  image_size: 48
  text_length: 9
schedule: {train_iters: 1, micro_batch_size: 2, global_batch_size: 2, seed: 13}
evaluation: {interval: 1, samples: 6, micro_batch_size: 4, global_batch_size: 4, remainder: mask}
optimizer: {lr: 1.0e-3}
"""


def test_every_key_of_a_recipe_arrives(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)
    found = settings_of(load(path).recipe, FLUX_TINY)
    assert vars(found) == {
        "kind": "energon", "path": "somewhere", "micro_batch_size": 2, "seed": 13,
        "eval_micro_batch_size": 4, "num_workers": 5, "val_num_workers": 0,
        "prefetch_factor": 3, "max_samples_per_sequence": 7, "shuffle_buffer_size": 11,
        "vae_latent_mode": "resample", "image_size": 48, "text_length": 9,
        "latent_channels": 16, "context_dim": 32, "vec_in_dim": 32, "mock_samples": None,
        "endless_validation": True,
    }  # fmt: skip
    assert found.shape.of("mean") == (16, 6, 6)
