# SPDX-License-Identifier: Apache-2.0
"""Probes and trackers: they say what is wrong on every rank, and change nothing else."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

import pytest
import torch

from mxflux.recipe.loading import load
from mxflux.training.errors import SetupError, TrainingError
from mxflux.training.probes import TimedBatches, TrainProfile
from mxflux.training.trackers import Trackers

if TYPE_CHECKING:
    from pathlib import Path

    from mxflux.recipe.schema import Recipe

RECIPE = """\
name: tiny
device: cpu
model: {preset: flux_tiny}
precision: {params_dtype: float32}
data: {kind: digits, image_size: 32, text_length: 4}
schedule: {train_iters: 3, micro_batch_size: 8, global_batch_size: 64}
optimizer: {lr: 4.0e-3}
"""


def recipe(folder: Path, *overrides: str) -> Recipe:
    """A tiny recipe with other values."""
    path = folder / "recipe.yaml"
    path.write_text(RECIPE, "utf-8")
    return load(path, overrides).recipe


@pytest.mark.parametrize(
    ("override", "package"),
    [("logging.tensorboard=true", "tensorboard"), ("logging.wandb_project=p", "wandb")],
)
def test_a_tracker_that_is_not_installed_stops_every_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, override: str, package: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match=f"needs the package {package}"):
        Trackers(recipe(tmp_path, override), tmp_path, enabled=False)


def test_no_tracker_by_default(tmp_path: Path) -> None:
    trackers = Trackers(recipe(tmp_path), tmp_path, enabled=True)
    trackers.write("train", 1, {"loss": 0.5})
    trackers.close()
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.yaml"]


TRAIN = {"loss": 0.5, "lr": 1e-3, "grad_norm": None, "step": 1}


@pytest.mark.filterwarnings("default")  # their own
def test_tensorboard_has_the_numbers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    trackers = Trackers(recipe(tmp_path, "logging.tensorboard=true"), tmp_path, enabled=True)
    trackers.write("train", 1, TRAIN)
    trackers.write("evaluation", 1, {"loss": 0.25})
    trackers.close()
    events: Any = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    found = events.EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert sorted(found.Tags()["scalars"]) == ["evaluation/loss", "train/loss", "train/lr"]
    (loss,) = found.Scalars("evaluation/loss")
    assert (loss.step, loss.value) == (1, 0.25)


@pytest.mark.filterwarnings("default")  # their own
def test_wandb_offline_leaves_files_with_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_SILENT", "true")
    asked = recipe(tmp_path, "logging.wandb_project=p")
    trackers = Trackers(asked, tmp_path, enabled=True)
    trackers.write("train", 1, TRAIN)
    trackers.close()
    (written,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    content = written.read_bytes()
    for part in (b"train/loss", b"train/lr", b"flux_tiny"):
        assert part in content
    assert b"grad_norm" not in content


def test_time_in_the_loader_adds_up_until_it_is_taken() -> None:
    batches = TimedBatches(iter([{"a": 1}, {"a": 2}]))
    assert [next(batches), next(batches)] == [{"a": 1}, {"a": 2}]
    assert batches.take_seconds() > 0
    assert batches.take_seconds() == 0


def test_data_that_end_are_an_error() -> None:
    batches = TimedBatches(iter([{"a": 1}]))
    next(batches)
    with pytest.raises(TrainingError, match="the training data ended before the last step"):
        next(batches)


@pytest.mark.parametrize(("resumed_at", "traced"), [(1, [2, 3]), (3, [3]), (4, [])])
def test_a_resumed_run_traces_what_is_left(
    tmp_path: Path, resumed_at: int, traced: list[int]
) -> None:
    probes = recipe(
        tmp_path, "probes.train_profile=true", "probes.profile_step_start=2",
        "probes.profile_step_end=4",
    ).probes  # fmt: skip
    profile = TrainProfile(probes, tmp_path, 0)
    for step in range(resumed_at, 6):
        profile.before_step(step)
        with torch.profiler.record_function(f"step {step}"):
            pass
        profile.after_step(step)
    text = profile.path.read_text("utf-8") if profile.path.exists() else ""
    assert [step for step in range(1, 6) if f'"step {step}"' in text] == traced
