# SPDX-License-Identifier: Apache-2.0
"""Batch arithmetic of a launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxflux.recipe.launch import batch

if TYPE_CHECKING:
    from conftest import MakeRecipe


def test_the_samples_of_a_step(recipe: MakeRecipe) -> None:
    found = batch.of(recipe("cpu").recipe, 2)
    assert (found.data_parallel_size, found.accumulation, found.train_samples) == (2, 2, 160)
    expected = "16 samples a step = 4 (micro batch) x 2 (data-parallel ranks) x 2 (accumulation)"
    assert str(found) == expected
    assert (found.evaluation, found.problems) == (None, ())


def test_ranks_that_do_not_divide_the_batch(recipe: MakeRecipe) -> None:
    (problem,) = batch.of(recipe("cpu").recipe, 3).problems
    assert "16 is not a multiple of schedule.micro_batch_size 4 x 3" in problem
    assert "use 12 or 24" in problem


def test_the_samples_of_an_evaluation(recipe: MakeRecipe) -> None:
    loaded = recipe("cpu", evaluation={"interval": 5, "samples": 64, "micro_batch_size": 8})
    found = batch.of(loaded.recipe, 2)
    assert found.problems == ()
    assert found.evaluation is not None
    assert (found.evaluation.samples, found.evaluation.iterations) == (64, 4)
    assert found.to_json()["evaluation"]["samples"] == 64


def test_an_evaluation_that_does_not_divide(recipe: MakeRecipe) -> None:
    loaded = recipe("cpu", evaluation={"interval": 5, "samples": 64})
    (problem,) = [p for p in batch.of(loaded.recipe, 6).problems if p.startswith("evaluation")]
    assert "16" in problem
