# SPDX-License-Identifier: Apache-2.0
"""A small data set on disk, and the settings that fit it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mxflux.data import DataSettings
from mxflux.data.settings import SampleShape
from mxflux.data.synth import synthesise

if TYPE_CHECKING:
    from collections.abc import Callable

sys.path.insert(0, str(Path(__file__).parent))

SHAPE = SampleShape(channels=16, height=4, width=4, text_length=6, context_dim=8, vec_in_dim=5)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 training and 25 validation samples in shards of 16; never changed by a test."""
    folder = tmp_path_factory.mktemp("data") / "synthetic"
    synthesise(
        folder,
        SHAPE,
        samples=50,
        validation_samples=25,
        latent_keys=("latents",),
        shard_size=16,
    )
    return folder


@pytest.fixture
def settings(dataset: Path) -> Callable[..., DataSettings]:
    """Settings that fit the data set, with changes."""

    def build(**changes: Any) -> DataSettings:
        values: dict[str, Any] = {
            "kind": "energon", "path": str(dataset), "micro_batch_size": 4, "seed": 1,
            "num_workers": 0, "val_num_workers": 0, "image_size": 32, "text_length": 6,
            "context_dim": 8, "vec_in_dim": 5,
        }  # fmt: skip
        return DataSettings(**{**values, **changes})

    return build
