# SPDX-License-Identifier: Apache-2.0
"""Evaluation where it meets Megatron: its parallel state and its tracked generators."""

from __future__ import annotations

from support import ranks


def test_iterations_are_derived_once_the_ranks_are_known() -> None:
    for found in ranks.run("evaluation_on_megatron:budgets", world=2):
        assert "initialize_model_parallel: derive it after that" in found["early"]
        budget = found["budget"]
        assert (budget.data_parallel_size, budget.num_microbatches) == (2, 4)
        assert (budget.iterations, budget.samples) == (3, 96)


def test_megatrons_generators_are_as_before() -> None:
    (found,) = ranks.run("evaluation_on_megatron:generators", world=1)
    assert found["guarded"] == found["fresh"]
    assert found["advanced"] != found["fresh"]
