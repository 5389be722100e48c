# SPDX-License-Identifier: Apache-2.0
"""The validation loss: a global sum over a global count in fp64, the same bits on every rank."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mxflux.training.flow_matching import per_sample_losses
from mxflux.training.packed_weights import pack_weights_anew
from mxflux.training.timestep_sampling import (
    EVALUATION_LEVELS,
    evaluation_sigmas,
    sigmas_from_field,
)

from .errors import EvaluationResultError
from .filling import batch_rows, weighted_batches
from .prefetch import ValidationBatches
from .probes import EvaluationProbe, ProbeSettings
from .rng import preserved_rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mxflux.training.forward_step import FluxForwardStep

    from .budget import EvalBudget


@dataclass(frozen=True)
class EvaluationResult:
    """One evaluation; every value is equal on all ranks but ``seconds`` and ``probes``.

    ``loss`` is the sum of per-sample losses over ``count`` samples; ``per_timestep`` the mean and
    ``per_timestep_count`` the number of samples at each level k of sigma = k/8 that occurred.
    """

    step: int
    loss: float
    count: int
    per_timestep: dict[int, float]
    per_timestep_count: dict[int, int]
    seconds: float
    probes: dict[str, list[float]] = field(default_factory=dict)

    @property
    def mean_of_timesteps(self) -> float:
        """Mean over levels of their means: MLPerf's metric, ``loss`` when all counts are equal."""
        return sum(self.per_timestep.values()) / len(self.per_timestep)


class Evaluator:
    """Runs evaluations that leave training as it was: mode, generators and counters.

    Args:
        model: as the forward step takes it (DDP-wrapped or not); each rank a full replica.
        forward_step: its counter keys the noise to the micro-batch within the evaluation.
        loader_factory: gives the loader of one evaluation from its start (called in a thread
            when ``prefetch`` is on). Batches as in mxflux.data; ``.samples``, where the loader
            has it, is the number of this rank's samples.
        budget: what every evaluation reads and counts.
        group: data-parallel process group (None: the default group); unused without
            torch.distributed.

    With overlap_param_gather call Megatron's disable_forward_pre_hook before and
    enable_forward_pre_hook after, as for Megatron's own evaluate.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        forward_step: FluxForwardStep,
        loader_factory: Callable[[], Iterable[Mapping[str, Any]]],
        budget: EvalBudget,
        *,
        group: torch.distributed.ProcessGroup | None = None,
        prefetch: bool = True,
        probes: ProbeSettings | None = None,
    ) -> None:
        self.model = model
        self.forward_step = forward_step
        self.budget = budget
        self.group = group
        self.probes = probes or ProbeSettings()
        self._share: int | None = None
        self._factory = loader_factory
        self.batches = ValidationBatches(self._open, enabled=prefetch)

    def run(self, step: int, *, prefetch_next: bool = True) -> EvaluationResult:
        """Evaluate after training step ``step``; give ``prefetch_next`` False for the last one.

        Raises EvaluationResultError, on all ranks alike, when the samples seen are not the
        budget's or the loss is not finite; on one rank what its loader raised.
        """
        start = time.perf_counter()
        device = self.forward_step.device
        with self._undisturbed(), EvaluationProbe(self.probes, device) as probe:
            sums = self._accumulate(probe)
        totals = all_reduce_rows(sums, self.group)
        if prefetch_next:
            self.batches.arm()
        return self._result(step, totals, time.perf_counter() - start, probe.report(step))

    def close(self) -> None:
        """Wait for a batch that is being fetched and drop it."""
        self.batches.close()

    def _open(self) -> Iterator[Mapping[str, Any]]:
        loader = self._factory()
        self._share = getattr(loader, "samples", None)
        return iter(loader)

    @contextlib.contextmanager
    def _undisturbed(self) -> Iterator[None]:
        counter = self.forward_step.counter
        before = counter.training, counter.evaluation
        counter.start_evaluation()
        try:
            with preserved_rng(self.forward_step.device), evaluating(self.model), torch.no_grad():
                pack_weights_anew(self.model)
                yield
        finally:
            counter.training, counter.evaluation = before

    def _accumulate(self, probe: EvaluationProbe) -> Tensor:
        """[2, 8] fp64: this rank's weighted loss sums and weights by timestep level."""
        sums = torch.zeros(
            2, EVALUATION_LEVELS, dtype=torch.float64, device=self.forward_step.device
        )
        batches = probe.timed(self.batches.take())
        for batch, weight in weighted_batches(batches, self.budget, self._share):
            probe.mark()
            step = self.forward_step.run(batch, self.model)
            losses = per_sample_losses(step.prediction, step.latents, step.noise)
            sums += _by_level(losses, weight.to(losses.device), _levels(batch, losses.device))
        probe.mark()
        return sums

    def _result(
        self, step: int, totals: Tensor, seconds: float, probes: dict[str, list[float]]
    ) -> EvaluationResult:
        sums, counts = totals.tolist()
        count = round(sum(counts))
        if count != self.budget.samples:
            raise EvaluationResultError(
                f"evaluation after step {step} counted {count} samples instead of "
                f"{self.budget.samples} ({self.budget}): the validation data ended early, or its "
                "shards do not fit the ranks and workers"
            )
        loss = math.fsum(sums) / count
        if not math.isfinite(loss):
            bad = [str(k) for k, value in enumerate(sums) if not math.isfinite(value)]
            raise EvaluationResultError(
                f"validation loss after step {step} is {loss} (timesteps {', '.join(bad)} of 8)"
            )
        seen = {k: round(n) for k, n in enumerate(counts) if n}
        means = {k: sums[k] / n for k, n in seen.items()}
        return EvaluationResult(step, loss, count, means, seen, seconds, probes)


@contextlib.contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards every module has the mode that it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def all_reduce_rows(values: Tensor, group: torch.distributed.ProcessGroup | None = None) -> Tensor:
    """Sum of ``values`` over the ranks of ``group`` in one all-reduce, the same bits everywhere.

    Each rank adds its numbers to a row of zeros of its own, which is exact in any order; the
    rows are then summed in rank order. So neither the backend's algorithm nor the topology shows.
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return values.cpu()
    rows = values.new_zeros(distributed.get_world_size(group), *values.shape)
    rows[distributed.get_rank(group)] = values
    distributed.all_reduce(rows, group=group)
    return rows.cpu().sum(dim=0)


def _levels(batch: Mapping[str, Any], device: torch.device) -> Tensor:
    """Timestep level 0..7 [B] of each sample, as the forward step takes it."""
    if "timestep" in batch:
        sigma = sigmas_from_field(batch["timestep"].to(device))
    else:
        sigma = evaluation_sigmas(batch_rows(batch), device)
    return (sigma * EVALUATION_LEVELS).long()


def _by_level(losses: Tensor, weight: Tensor, level: Tensor) -> Tensor:
    """[2, 8]: sums of weighted losses and of weights at each level; no atomics, so repeatable."""
    chosen = torch.nn.functional.one_hot(level, EVALUATION_LEVELS).to(torch.float64)
    weights = weight[:, None] * chosen
    # A filler's loss may be anything, NaN too, and 0 * NaN is not 0.
    weighted = torch.where(weights > 0, losses[:, None] * weights, 0)
    return torch.stack((weighted.sum(0), weights.sum(0)))
