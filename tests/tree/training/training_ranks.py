# SPDX-License-Identifier: Apache-2.0
"""What training tests run on each rank in place of the trainer's main."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mxflux.recipe.loading import load
from mxflux.training import main as training_main
from mxflux.training.process import started_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mxflux.training.setup import Ready


def state_around_warm_up(run: Path) -> int:
    """Which parts of a rank's state a step changes, and which a warm-up leaves changed."""
    with _ready(run) as (trainer, ready):
        from mxflux.training.warmup import batch_shape, warm_up_training

        shape = batch_shape(trainer.recipe, trainer.architecture, 8)
        before = _state(ready)
        warm_up_training(ready.train_step, shape, 2, contextlib.nullcontext())
        after = _state(ready)
        inner = ready.built.optimizer.chained_optimizers[0].optimizer
        states = len(inner.state)
        batches = itertools.repeat(_batch(trainer))
        ready.train_step(batches, 1)
        stepped = _state(ready)
        if trainer.process.is_first:
            answer = {
                "changed by the warm-up": _differences(before, after),
                "changed by a step": _differences(before, stepped),
                "adam states": states,
            }
            (run / "answer.json").write_text(json.dumps(answer), "utf-8")
    return 0


def next_loss_of_two_ranks(run: Path) -> int:
    """The loss that two ranks report for the step after the checkpoint, on one rank."""
    with _ready(run) as (trainer, ready):
        from mxflux.training.saving import Checkpoints

        loader = _loader(trainer, 0, 1)
        checkpoints = Checkpoints(trainer.recipe, run, "", published=lambda *_: None)
        position = checkpoints.resume(ready.built, ready.forward_step, loader, 4, 0)
        losses = [_loss_as_rank(trainer, ready, rank, position) for rank in range(2)]
    (run / "answer.json").write_text(json.dumps(sum(losses) / 2), "utf-8")
    return 0


def _loss_as_rank(trainer: Any, ready: Ready, rank: int, position: Any) -> float:
    """Mean loss of the two micro-batches that ``rank`` of two has next."""
    from mxflux.training.forward_step import FluxForwardStep, reduce_loss
    from mxflux.training.random_state import StepCounter

    settings = replace(ready.forward_step.settings, data_parallel_rank=rank)
    counter = StepCounter.resume(position.step, 2)
    step = FluxForwardStep(ready.built.config, settings, device="cpu", counter=counter)
    loader = _loader(trainer, rank, 2)
    loader.load_state_dict({**loader.state_dict(), "consumed": position.samples})
    losses = []
    for _ in range(2):
        out = step.run(next(loader), ready.built.ddp)
        loss, _ = reduce_loss(
            out.prediction, latents=out.latents, noise=out.noise, is_validation=False
        )
        losses.append(loss.detach())
    return float(torch.stack(losses).mean())


def one_linear_in_bf16(run: Path) -> int:
    """A run whose model has one plain linear where an MX linear should be."""
    from megatron.core.tensor_parallel import ColumnParallelLinear

    from mxflux.training import setup

    def build(recipe: Any, process: Any) -> Any:
        built = original(recipe, process)
        linear: Any = built.model.transformer.layers[1].mlp.linear_fc1
        linear._forward_impl = partial(ColumnParallelLinear._forward_impl, linear)
        return built

    original = setup.build
    vars(setup)["build"] = build
    return training_main.main(["--run-dir", str(run)])


def graphs_of_mxfp4(run: Path) -> int:
    """How many graphs are compiled after the watched step, and after two more."""
    from mxflux.training.first_step import FirstStep

    with _ready(run) as (trainer, ready):
        batches = _loader(trainer, 0, 1)
        with FirstStep(trainer.recipe, ready.built.model, None, ready.traced).watched():
            ready.train_step(batches, 1)
        assert ready.traced is not None
        graphs = [ready.traced.graphs]
        for step in (2, 3):
            ready.train_step(batches, step)
            graphs.append(ready.traced.graphs)
    (run / "answer.json").write_text(json.dumps(graphs), "utf-8")
    return 0


def another_epsilon(run: Path) -> int:
    """A run whose model is built with another value than the recipe's."""
    from mxflux.training import setup

    def build(recipe: Any, process: Any) -> Any:
        built = original(recipe, process)
        built.config.layernorm_epsilon = 1e-5
        return built

    original = setup.build
    vars(setup)["build"] = build
    return training_main.main(["--run-dir", str(run)])


def nan_on_rank_1(run: Path) -> int:
    """A run that reads a NaN on rank 1 in its second step."""
    from mxflux.data import indexed

    original = indexed.IndexedLoader.__next__

    def poisoned(self: Any) -> Any:
        batch = original(self)
        # Two micro-batches a step: the third belongs to step 2.
        if self.rank == 1 and self.observed == 3 * self.batch_size:
            batch["latents"][0, 0, 0, 0] = float("nan")
        return batch

    indexed.IndexedLoader.__next__ = poisoned  # type: ignore[method-assign]
    return training_main.main(["--run-dir", str(run)])


def nan_in_validation(run: Path) -> int:
    """A run whose validation data hold a NaN on rank 1."""
    from mxflux.data import indexed

    original = indexed.IndexedLoader.__next__

    def poisoned(self: Any) -> Any:
        batch = original(self)
        if self.rank == 1 and self.shuffle_seed is None:
            batch["latents"][0, 0, 0, 0] = float("nan")
        return batch

    indexed.IndexedLoader.__next__ = poisoned  # type: ignore[method-assign]
    return training_main.main(["--run-dir", str(run)])


def fake_world_of_8(run: Path) -> int:
    """Rank 0 of 8, the others imagined."""
    return training_main.main(["--run-dir", str(run), "--fake-world", "8"])


def without_dynamo(run: Path) -> int:
    """A run in which torch.compile is switched off from outside."""
    config: Any = importlib.import_module("torch._dynamo.config")
    config.disable = True
    return training_main.main(["--run-dir", str(run)])


@contextlib.contextmanager
def _ready(run: Path) -> Iterator[tuple[Any, Ready]]:
    recipe = load(run / "recipe.yaml").recipe
    with (
        started_process(
            recipe.device,
            transformer_impl=recipe.model.transformer_impl,
            backend=recipe.parallel.distributed_backend,
            timeout_minutes=1,
        ) as process,
        contextlib.ExitStack() as stack,
    ):
        from mxflux.training.trainer import Trainer

        trainer = Trainer(recipe, run, process, recipe_sha256="")
        trainer._start(stack)
        ready = trainer._ready()
        ready.hooks.before_training()
        yield trainer, ready


def _batch(trainer: Any) -> Any:
    return next(_loader(trainer, trainer.rank, trainer.ranks))


def _loader(trainer: Any, rank: int, world: int) -> Any:
    from mxflux.data import build_loaders

    return build_loaders(trainer.data, rank=rank, world_size=world, training=True)


def _state(ready: Ready) -> dict[str, Any]:
    """Copies of all that training depends on."""
    from megatron.core.tensor_parallel.random import get_cuda_rng_tracker

    state: dict[str, Any] = {
        f"parameter {name}": p.detach().clone() for name, p in ready.built.model.named_parameters()
    }
    inner = ready.built.optimizer.chained_optimizers[0].optimizer
    for index, group in enumerate(inner.param_groups):
        state[f"main parameters {index}"] = [p.detach().clone() for p in group["params"]]
        state[f"group {index}"] = {k: v for k, v in group.items() if k != "params"}
    state["adam"] = [list(values.values()) for values in inner.state.values()]
    state["schedule"] = ready.built.scheduler.state_dict()
    state["counter"] = vars(ready.forward_step.counter).copy()
    state["started"] = ready.forward_step.started
    state["torch"] = torch.get_rng_state()
    state["python"] = random.getstate()
    state["numpy"] = np.random.get_state()
    state["tracker"] = {k: v.clone() for k, v in get_cuda_rng_tracker().get_states().items()}
    return state


def _differences(one: Any, other: Any) -> list[str]:
    return [name for name in one if not _equal(one[name], other[name])]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)
