# SPDX-License-Identifier: Apache-2.0
"""Evaluation budgets: every shape of the MLPerf split that is accepted and refused, exactly."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from mxflux.evaluation.budget import (
    assert_val_worker_divisibility,
    budget_of_args,
    get_eval_global_batch_size,
    get_eval_micro_batch_size,
    get_eval_num_microbatches,
    plan_evaluation,
)
from mxflux.evaluation.errors import EvaluationError

COCO = 29_696
"""2^10 * 29 samples: MLPerf's validation split of flux1."""


@pytest.mark.parametrize(
    ("ranks", "size", "workers", "batches"),
    [
        (8, 64, 1, 58),
        (8, 64, 0, 58),
        (8, 64, 2, 58),
        (8, 32, 1, 116),
        (8, 32, 4, 116),
        (16, 32, 1, 58),
        (32, 32, 0, 29),
        (32, 32, 1, 29),
        (64, 16, 1, 29),
        (1, 512, 2, 58),
        (29, 1024, 1, 1),
    ],
)
def test_shapes_of_the_split_that_fit(ranks: int, size: int, workers: int, batches: int) -> None:
    assert assert_val_worker_divisibility(COCO, size, workers, ranks) == batches
    budget = plan_evaluation(
        samples=COCO, micro_batch_size=size, data_parallel_size=ranks, num_workers=workers
    )
    assert (budget.batches_per_rank, budget.capacity, budget.filler) == (batches, COCO, 0)


@pytest.mark.parametrize(
    ("ranks", "size", "workers", "left"),
    [
        (64, 32, 1, 1024),
        (72, 32, 1, 2048),
        (288, 8, 1, 2048),
        (512, 8, 1, 1024),
        (32, 32, 2, 1024),
        (8, 64, 4, 1024),
        (16, 32, 4, 1024),
        (7, 16, 1, 16),
    ],
)
def test_shapes_of_the_split_that_do_not_fit(
    ranks: int, size: int, workers: int, left: int
) -> None:
    divisor = f"{COCO} % ({size} * {workers} * {ranks}) = {left}"
    with pytest.raises(EvaluationError) as refused:
        assert_val_worker_divisibility(COCO, size, workers, ranks)
    assert divisor in str(refused.value)
    with pytest.raises(EvaluationError, match=r"evaluation\.remainder: pad or mask"):
        plan_evaluation(
            samples=COCO, micro_batch_size=size, data_parallel_size=ranks, num_workers=workers
        )


@pytest.mark.parametrize("remainder", ["pad", "mask"])
@pytest.mark.parametrize(
    ("ranks", "size", "batches", "filler"),
    [(64, 32, 15, 1024), (72, 32, 13, 256), (288, 8, 13, 256), (512, 8, 8, 3072), (8, 64, 58, 0)],
)
def test_a_declared_remainder_counts_the_split_and_not_more(
    remainder: str, ranks: int, size: int, batches: int, filler: int
) -> None:
    budget = plan_evaluation(
        samples=COCO, micro_batch_size=size, data_parallel_size=ranks, remainder=remainder
    )
    assert (budget.samples, budget.batches_per_rank, budget.filler) == (COCO, batches, filler)
    assert budget.capacity - budget.filler == COCO


def test_sizes_that_fit_are_named() -> None:
    with pytest.raises(EvaluationError, match="Micro-batch sizes that fit: 8, 16, 29, 58;"):
        assert_val_worker_divisibility(COCO, 32, 2, 32)
    with pytest.raises(EvaluationError, match="No micro-batch size divides it among 72 readers"):
        assert_val_worker_divisibility(COCO, 32, 1, 72)


def test_the_full_split_at_512_samples_is_58_iterations() -> None:
    budget = plan_evaluation(
        samples=COCO, micro_batch_size=32, data_parallel_size=8, global_batch_size=512
    )
    assert (budget.iterations, budget.num_microbatches, budget.width) == (58, 2, 512)


def test_the_evaluation_width_counts_not_that_of_training() -> None:
    args = SimpleNamespace(
        micro_batch_size=16, global_batch_size=512, eval_micro_batch_size=32,
        eval_global_batch_size=1024, data_parallel_size=32, eval_iters=29,
    )  # fmt: skip
    budget = budget_of_args(args, samples=COCO, data_parallel_size=lambda: 32)
    assert (budget.micro_batch_size, budget.iterations, budget.batches_per_rank) == (32, 29, 29)
    assert "x 32 (evaluation micro-batch size) x 32 ranks" in str(budget)
    assert budget_of_args(args, data_parallel_size=lambda: 32) == budget


def test_iterations_that_end_inside_an_accumulation_are_refused() -> None:
    with pytest.raises(EvaluationError, match="29 batches a rank, not whole iterations of 2"):
        plan_evaluation(
            samples=COCO, micro_batch_size=32, data_parallel_size=32, global_batch_size=2048
        )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"samples": 8, "iterations": 1}, "either"),
        ({}, "either"),
        ({"samples": 0}, "samples=0"),
        ({"iterations": -1}, "iters=-1"),
        ({"samples": 64, "global_batch_size": 48}, "not a multiple of the evaluation"),
        ({"samples": 64, "remainder": "drop"}, "remainder='drop'"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        plan_evaluation(micro_batch_size=32, data_parallel_size=1, **wrong)


# -- Megatron's arguments, release by release -----------------------------------------------


def test_arguments_before_0_18_have_no_evaluation_sizes() -> None:
    args = SimpleNamespace(micro_batch_size=4, global_batch_size=64, data_parallel_size=2)
    assert get_eval_micro_batch_size(args) == 4
    assert get_eval_global_batch_size(args) == 64
    assert get_eval_num_microbatches(args) == 8


def test_arguments_of_0_19_count_the_shards_of_generalised_tensor_parallelism() -> None:
    args = SimpleNamespace(
        micro_batch_size=4, global_batch_size=64, data_parallel_size=2, eval_micro_batch_size=8,
        eval_global_batch_size=64, gtp_weight_remat_size=2,
    )  # fmt: skip
    assert get_eval_num_microbatches(args) == 2


def test_an_unset_evaluation_size_is_that_of_training() -> None:
    args = SimpleNamespace(
        micro_batch_size=4, global_batch_size=64, data_parallel_size=2, eval_micro_batch_size=None,
        eval_global_batch_size=None,
    )  # fmt: skip
    assert get_eval_num_microbatches(args) == 8


@pytest.mark.parametrize("size", [None, 0])
def test_no_iterations_are_derived_before_the_ranks_are_known(size: int | None) -> None:
    args = SimpleNamespace(micro_batch_size=4, global_batch_size=64, data_parallel_size=size)
    with pytest.raises(EvaluationError, match="parallel state is initialized"):
        get_eval_num_microbatches(args)


def test_what_does_not_accumulate_is_refused_where_upstream_truncates() -> None:
    args = SimpleNamespace(
        micro_batch_size=4, global_batch_size=64, data_parallel_size=2, eval_global_batch_size=20
    )
    with pytest.raises(EvaluationError, match="global_batch_size=20 is not a multiple"):
        get_eval_num_microbatches(args)


def test_budgets_need_no_torch() -> None:
    code = "import sys, mxflux.evaluation.budget; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
