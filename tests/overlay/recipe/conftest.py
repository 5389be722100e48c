# SPDX-License-Identifier: Apache-2.0
"""A small recipe to write, change and load."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from mxflux.recipe import Loaded, RecipeError, load

sys.path.insert(0, str(Path(__file__).parent))

SMALL = """\
device: cpu
launch:
  nproc_per_node: 2
model:
  preset: flux_tiny
data:
  kind: digits
schedule:
  train_iters: 100
  micro_batch_size: 4
  global_batch_size: 8
optimizer:
  lr: 2e-4
"""

Load = Callable[..., Loaded]
Faults = Callable[..., list[str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, so that messages have short paths."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def load_text(folder: Path) -> Load:
    """load(text, overrides, environ) of a recipe r.yaml."""

    def run(
        text: str = SMALL, overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None
    ) -> Loaded:
        (folder / "r.yaml").write_text(text, encoding="utf-8")
        return load("r.yaml", overrides, environ or {})

    return run


@pytest.fixture
def faults(load_text: Load) -> Faults:
    """The faults of a recipe, one line each; fails when there is none."""

    def run(
        text: str = SMALL, overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None
    ) -> list[str]:
        with pytest.raises(RecipeError) as caught:
            load_text(text, overrides, environ)
        return [str(problem) for problem in caught.value.problems]

    return run


@pytest.fixture
def small() -> str:
    """The text of a recipe that loads."""
    return SMALL
