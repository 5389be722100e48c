# SPDX-License-Identifier: Apache-2.0
"""The validation loss: exact sums and counts, noise by position, training undisturbed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from evaluation_support import Model, Split, forward_step, samples

from mxflux.evaluation.budget import plan_evaluation
from mxflux.evaluation.errors import EvaluationError
from mxflux.evaluation.evaluator import Evaluator
from mxflux.training.random_state import StepCounter, evaluation_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def evaluator(
    total: int = 64,
    size: int = 16,
    loader: Callable[[], Iterable[Any]] | None = None,
    **options: Any,
) -> Evaluator:
    remainder = options.pop("remainder", "refuse")
    budget = plan_evaluation(
        samples=total, micro_batch_size=size, data_parallel_size=1, remainder=remainder
    )
    options.setdefault("prefetch", False)
    step = options.pop("step", None) or forward_step()
    return Evaluator(Model(), step, loader or (lambda: Split(total, size)), budget, **options)


def by_hand(total: int, size: int) -> dict[int, list[float]]:
    """Losses of each level, from the formulas alone."""
    model, losses = Model().eval(), {}
    for index, first in enumerate(range(0, total, size)):
        batch = samples(first, size)
        own = torch.Generator().manual_seed(evaluation_seed(9, 0, index))
        noise = torch.randn(batch["latents"].shape, generator=own)
        sigma = (batch["timestep"].float() / 8).view(-1, 1, 1, 1)
        noisy = (1 - sigma) * batch["latents"] + sigma * noise
        with torch.no_grad():
            out = model.linear(noisy.view(size, 1, 4)).view(size, 1, 2, 2)
        errors = (out - (noise - batch["latents"])).square().double().mean(dim=(1, 2, 3))
        for level, error in zip(batch["timestep"].tolist(), errors.tolist(), strict=True):
            losses.setdefault(level, []).append(error)
    return losses


def test_loss_is_the_sum_over_the_count() -> None:
    result = evaluator().run(3)
    expected = by_hand(64, 16)
    everything = [loss for losses in expected.values() for loss in losses]
    assert result.loss == pytest.approx(sum(everything) / 64, rel=1e-12)
    assert (result.step, result.count) == (3, 64)
    for level, losses in expected.items():
        assert result.per_timestep[level] == pytest.approx(sum(losses) / len(losses), rel=1e-12)
    assert result.per_timestep_count == dict.fromkeys(range(8), 8)
    assert result.mean_of_timesteps == pytest.approx(result.loss, rel=1e-14)


def test_an_evaluation_repeats_bit_for_bit() -> None:
    run = evaluator()
    first, second = run.run(1), run.run(2)
    assert (first.loss, first.per_timestep) == (second.loss, second.per_timestep)


def test_micro_batches_of_one_evaluation_draw_different_noise() -> None:
    seen: list[torch.Tensor] = []
    step = forward_step()
    prepare = step.prepare

    def watch(batch: Any, *, training: bool) -> Any:
        prepared = prepare(batch, training=training)
        seen.append(prepared.noise)
        return prepared

    step.prepare = watch  # type: ignore[method-assign]
    evaluator(step=step).run(1)
    assert len(seen) == 4
    assert len({tensor.sum().item() for tensor in seen}) == 4


def test_training_goes_on_as_if_nothing_had_been_evaluated() -> None:
    step = forward_step(counter=StepCounter(training=17, evaluation=2))
    run = evaluator(step=step)
    run.model.train()
    run.model.linear.eval()
    states = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())
    run.run(1)
    assert (step.counter.training, step.counter.evaluation) == (17, 2)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.random.get_state()[1].tolist() == states[2]
    assert run.model.training
    assert run.model.dropout.training
    assert not run.model.linear.training
    assert run.model.calls == [(16, False, False)] * 4


def test_a_failing_evaluation_leaves_training_as_it_was_too() -> None:
    def broken() -> Iterable[Any]:
        yield samples(0, 16)
        raise OSError("shard 7 is gone")

    step = forward_step(counter=StepCounter(training=4))
    run = evaluator(step=step, loader=broken)
    run.model.train()
    state = torch.get_rng_state()
    with pytest.raises(OSError, match="shard 7"):
        run.run(1)
    assert run.model.dropout.training
    assert step.counter.training == 4
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("seen", [48, 56, 0])
def test_data_that_ends_early_is_an_error(seen: int) -> None:
    run = evaluator(loader=lambda: Split(seen, 16))
    with pytest.raises(EvaluationError, match=f"after step 5 counted {seen} samples instead of 64"):
        run.run(5)


def test_a_loss_that_is_no_number_is_an_error() -> None:
    bad = samples(0, 16)
    bad["latents"][3] = torch.nan
    run = evaluator(16, 16, loader=lambda: [bad])
    with pytest.raises(EvaluationError, match=r"validation loss after step 2 is nan \(timesteps 3"):
        run.run(2)


# -- splits that do not divide --------------------------------------------------------------


@pytest.mark.parametrize("total", [40, 41, 63, 64])
@pytest.mark.parametrize("remainder", ["pad", "mask"])
def test_filler_changes_neither_the_loss_nor_the_count(total: int, remainder: str) -> None:
    """Against the plain mean over the very same samples, each with the noise of its place."""
    split = Split(total, 16, endless=remainder == "mask")
    result = evaluator(total, remainder=remainder, loader=lambda: split).run(1)
    expected = by_hand(64, 16)
    # Samples of a batch differ in their noise alone by place, so those of the full run apply.
    kept = [loss for level, losses in expected.items() for loss in losses[: _of(total, level)]]
    assert len(kept) == total == result.count
    assert result.loss == pytest.approx(sum(kept) / total, rel=1e-12)


def _of(total: int, level: int) -> int:
    return len(range(level, total, 8))


def test_every_batch_has_the_full_size_when_padding() -> None:
    run = evaluator(40, remainder="pad")
    run.run(1)
    assert [size for size, _, _ in run.model.calls] == [16, 16, 16]


def test_filler_that_is_no_number_does_not_spoil_the_loss() -> None:
    rows = samples(0, 16)
    rows["latents"][8:] = torch.inf

    class Endless:
        samples = 8

        def __iter__(self) -> Any:
            yield rows

    result = evaluator(8, remainder="mask", loader=Endless).run(1)
    assert np.isfinite(result.loss)
    assert result.count == 8


def test_masking_needs_to_know_the_share_of_the_rank() -> None:
    run = evaluator(40, remainder="mask", loader=lambda: [samples(0, 16)] * 3)
    with pytest.raises(EvaluationError, match=r"its \.samples.*use pad"):
        run.run(1)


def test_a_rank_without_any_batch_cannot_pad() -> None:
    with pytest.raises(EvaluationError, match="no batch at all"):
        evaluator(40, remainder="pad", loader=list).run(1)


# -- prefetch and probes --------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [True, False])
def test_prefetch_changes_no_bit(prefetch: bool) -> None:
    run = evaluator(prefetch=prefetch)
    losses = [run.run(step, prefetch_next=step < 3).loss for step in (1, 2, 3)]
    run.close()
    assert set(losses) == {evaluator().run(1).loss}


def test_probes_report_periods_and_fetches(tmp_path: Any) -> None:
    from mxflux.evaluation.probes import ProbeSettings

    settings = ProbeSettings(
        profile=True, iteration_period=True, fetch_time=True, directory=tmp_path
    )
    plain, probed = evaluator().run(7), evaluator(probes=settings).run(7)
    assert plain.probes == {}
    assert probed.loss == plain.loss
    assert len(probed.probes["iteration_seconds"]) == 4
    assert len(probed.probes["fetch_seconds"]) == 4
    assert min(probed.probes["iteration_seconds"]) > 0
    assert [file.name for file in tmp_path.iterdir()] == ["evaluation-0000007-rank-0.json"]
    with pytest.raises(ValueError, match="needs a directory"):
        ProbeSettings(profile=True)
