# SPDX-License-Identifier: Apache-2.0
"""Full batches for every rank: filler where samples lack, and how much each sample counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .errors import EvaluationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .budget import EvalBudget


def weighted_batches(
    batches: Iterator[Mapping[str, Any]], budget: EvalBudget, share: int | None
) -> Iterator[tuple[Mapping[str, Any], Tensor]]:
    """(batch, weight [B] fp64 on the CPU) for each of the rank's ``budget.batches_per_rank``.

    ``refuse``: the loader's batches, all counted; a short or missing one simply is counted as
    what it is, which the evaluator finds afterwards. ``pad``: a short or missing batch is filled
    with copies of weight 0. ``mask``: of the loader's endless batches the first ``share`` samples
    count. Raises EvaluationError for ``mask`` without ``share``, and for a rank without any batch.
    """
    if budget.remainder == "mask":
        return _masked(batches, budget, share)
    if budget.remainder == "pad":
        return _padded(batches, budget)
    return _as_they_are(batches, budget)


def batch_rows(batch: Mapping[str, Any]) -> int:
    """Samples in a batch."""
    return int(batch["prompt_embeds"].shape[0])


def _as_they_are(
    batches: Iterator[Mapping[str, Any]], budget: EvalBudget
) -> Iterator[tuple[Mapping[str, Any], Tensor]]:
    for _ in range(budget.batches_per_rank):
        batch = next(batches, None)
        if batch is None:
            return
        yield batch, _ones(batch_rows(batch))


def _masked(
    batches: Iterator[Mapping[str, Any]], budget: EvalBudget, share: int | None
) -> Iterator[tuple[Mapping[str, Any], Tensor]]:
    if share is None:
        raise EvaluationError(
            "evaluation.remainder: mask needs a loader that knows how many samples are this "
            "rank's (its .samples); this one does not: use pad"
        )
    seen = 0
    for batch, weight in _as_they_are(batches, budget):
        weight[max(0, share - seen) :] = 0
        seen += batch_rows(batch)
        yield batch, weight


def _padded(
    batches: Iterator[Mapping[str, Any]], budget: EvalBudget
) -> Iterator[tuple[Mapping[str, Any], Tensor]]:
    size = budget.micro_batch_size
    last: Mapping[str, Any] | None = None
    for _ in range(budget.batches_per_rank):
        batch = next(batches, None)
        rows = 0 if batch is None else batch_rows(batch)
        source = last if batch is None else batch
        if source is None:
            raise EvaluationError("this rank's validation loader has no batch at all to pad")
        last = source if rows in {0, size} else _filled(source, size)
        yield last, torch.cat((_ones(rows), torch.zeros(size - rows, dtype=torch.float64)))


def _filled(batch: Mapping[str, Any], size: int) -> dict[str, Any]:
    """The batch with its samples repeated, in order, up to ``size`` of them."""
    rows = batch_rows(batch)
    index = torch.arange(size) % rows
    return {
        key: value[index.to(value.device)]
        if isinstance(value, Tensor) and value.dim() and value.shape[0] == rows
        else value
        for key, value in batch.items()
    }


def _ones(rows: int) -> Tensor:
    return torch.ones(rows, dtype=torch.float64)
