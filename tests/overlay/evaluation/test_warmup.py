# SPDX-License-Identifier: Apache-2.0
"""Validation warm-up: at the evaluation width, without a trace, never on real data."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import torch
from evaluation_support import Model, Split, forward_step

from mxflux.evaluation.budget import plan_evaluation
from mxflux.evaluation.evaluator import Evaluator
from mxflux.evaluation.warmup import BatchShape, synthetic_batch, warm_up_validation
from mxflux.training.random_state import StepCounter

if TYPE_CHECKING:
    import pytest

SHAPE = BatchShape(
    micro_batch_size=16, channels=1, height=2, width=2, text_length=1, context_dim=2, vec_in_dim=2
)


def test_it_runs_as_evaluation_does() -> None:
    model = Model()
    assert warm_up_validation(model, forward_step(), SHAPE, 3) > 0
    assert model.calls == [(16, False, False)] * 3


def test_every_state_is_as_before() -> None:
    model, step = Model().train(), forward_step(counter=StepCounter(training=5, evaluation=1))
    parameters = [p.clone() for p in model.parameters()]
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    warm_up_validation(model, step, SHAPE, 2)
    assert all(map(torch.equal, model.parameters(), parameters))
    assert all(p.grad is None for p in model.parameters())
    assert model.training
    assert (step.counter.training, step.counter.evaluation) == (5, 1)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.random.get_state()[1].tolist() == states[2]


def test_the_validation_loss_is_the_same_with_and_without() -> None:
    losses = []
    for steps in (0, 1, 7):
        model, step = Model().train(), forward_step()
        budget = plan_evaluation(samples=64, micro_batch_size=16, data_parallel_size=1)
        evaluator = Evaluator(model, step, lambda: Split(64, 16), budget)
        warm_up_validation(model, step, SHAPE, steps)
        losses.append(evaluator.run(1, prefetch_next=False).loss.hex())
    assert len(set(losses)) == 1


def test_a_resumed_run_skips_it_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    model = Model()
    with caplog.at_level("INFO"):
        assert warm_up_validation(model, forward_step(), SHAPE, 3, iteration=100) == 0
    assert model.calls == []
    assert "resumed at iteration 100" in caplog.text


def test_no_steps_do_nothing() -> None:
    model = Model()
    assert warm_up_validation(model, forward_step(), SHAPE, 0) == 0
    assert model.calls == []


def test_synthetic_batches_have_the_keys_of_the_latent_mode_and_repeat() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    batch = synthetic_batch(SHAPE, ("mean", "logvar"), timesteps=True)
    again = synthetic_batch(SHAPE, ("mean", "logvar"), timesteps=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(batch[key], again[key]) for key in batch)
    assert {key: tuple(value.shape) for key, value in batch.items()} == {
        "mean": (16, 1, 2, 2), "logvar": (16, 1, 2, 2), "prompt_embeds": (16, 1, 2),
        "pooled_prompt_embeds": (16, 2), "timestep": (16,),
    }  # fmt: skip
    assert "timestep" not in synthetic_batch(SHAPE, ("latents",))
