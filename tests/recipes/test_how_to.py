# SPDX-License-Identifier: Apache-2.0
"""The recipe in docs/how-to/recipes.md loads, and its faults are worded as shown there."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxflux.recipe import RecipeError, load

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "recipes.md").read_text(encoding="utf-8")


@pytest.fixture
def example(tmp_path: Path) -> Path:
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    path = tmp_path / "my_run.yaml"
    path.write_text(PAGE.partition("```yaml\n")[2].partition("```")[0], encoding="utf-8")
    return path


def test_the_example_loads(example: Path) -> None:
    recipe = load(example, environ={"FLUX_DATA_PATH": "/data"}).recipe
    assert (recipe.name, recipe.data.path, recipe.schedule.train_iters) == ("my_run", "/data", 300)


def test_the_faults_are_worded_as_shown(example: Path) -> None:
    overrides = [
        "model.attention_backned=auto",
        'optimizer.lr="2e-4"',
        "schedule.global_batch_size=500",
        "precision.fp8_margin=1",
    ]
    with pytest.raises(RecipeError) as caught:
        load(example, overrides, {})
    for problem in caught.value.problems:
        start = problem.message.partition("=500 is")[0].partition(" got ")[0]
        assert start in PAGE, problem
    assert len(caught.value.problems) == 5
