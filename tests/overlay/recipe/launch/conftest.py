# SPDX-License-Identifier: Apache-2.0
"""Recipes to launch: small files with everything that a launch asks for."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from ruamel.yaml import YAML

from mxflux.recipe import load

if TYPE_CHECKING:
    from mxflux.recipe import Loaded

CPU = {
    "device": "cpu",
    "launch": {"nproc_per_node": 2},
    "model": {"preset": "flux_tiny"},
    "precision": {"params_dtype": "float32"},
    "data": {"kind": "mock"},
    "schedule": {"train_iters": 10, "micro_batch_size": 4, "global_batch_size": 16},
    "optimizer": {"lr": 1e-3},
    "parallel": {"distributed_backend": "gloo"},
}
MI355X = {
    "device": "mi355x",
    "launch": {"nproc_per_node": 8},
    "model": {
        "preset": "flux_12b",
        "transformer_impl": "transformer_engine",
        "attention_backend": "fused",
    },
    "precision": {
        "fp4": "e2m1",
        "fp4_recipe": "mxfp4",
        "fp4_use_native_te_autocast": True,
        "gemm_backend": "aiter",
    },
    "data": {"kind": "mock"},
    "schedule": {"train_iters": 10, "micro_batch_size": 64, "global_batch_size": 512},
    "optimizer": {"lr": 2e-4},
}
BASES = {"cpu": CPU, "mi355x": MI355X}


class MakeRecipe(Protocol):
    """Writes a recipe for a device, with keys on top, and loads it."""

    def __call__(self, device: str = "cpu", **changes: Any) -> Loaded: ...


@pytest.fixture
def recipe(tmp_path: Path) -> MakeRecipe:
    """Return a function that makes recipes; ``schedule__seed=7`` sets schedule.seed."""

    def make(device: str = "cpu", **changes: Any) -> Loaded:
        content = copy.deepcopy(BASES[device])
        for key, value in changes.items():
            section, _, name = key.partition("__")
            if name:
                content.setdefault(section, {})[name] = value  # type: ignore[index]
            else:
                content[section] = value
        path = tmp_path / f"{device}_run.yaml"
        with path.open("w") as file:
            YAML(typ="safe", pure=True).dump(content, file)
        return load(path, environ={})

    return make
