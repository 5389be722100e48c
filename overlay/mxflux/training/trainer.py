# SPDX-License-Identifier: Apache-2.0
"""A whole training run on one rank: build, resume, warm up, train, evaluate, save, stop.

The loop is mxflux's own, on Megatron-core's DDP, distributed optimizer, schedule and forward-
backward function. Megatron's ``pretrain`` is not used: it parses its own command line, builds a
tokenizer, allocates on CUDA and keeps its state in globals, so that it runs neither on the CPU nor
on core 0.16 (which has no megatron.training), and it saves checkpoints that no one can verify.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from megatron.core import parallel_state

from mxflux.data import build_loaders, settings_of
from mxflux.evaluation.late_loader import LateLoader
from mxflux.evaluation.mlperf_facts import facts_of_recipe
from mxflux.evaluation.mlperf_log import MLPerfLog, log_path

from .build import initialize_parallel_state
from .configs import num_microbatches
from .effective import require_effective
from .errors import SetupError
from .evaluating import Evaluations, evaluation_budget
from .first_step import FirstStep
from .garbage import ManualGarbageCollection
from .loop import Loop, Outcome
from .metrics import next_attempt
from .reporting import Reporter
from .saving import Checkpoints, Position
from .setup import Ready, make_ready
from .signals import StopRequest
from .warmup import batch_shape, warm_up_training

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from mxflux.recipe.nodes import Origin
    from mxflux.recipe.schema import Recipe

    from .process import Process


class Trainer:
    """One run of ``recipe`` in ``run_dir``, in a process group that is joined already.

    ``run`` raises TrainingError and its kinds, CheckpointError, DataError, EvaluationError and
    OSError; on every rank alike where one rank alone cannot go on.
    """

    def __init__(
        self,
        recipe: Recipe,
        run_dir: Path,
        process: Process,
        *,
        recipe_sha256: str,
        origins: Mapping[str, Origin] | None = None,
    ) -> None:
        self.recipe = recipe
        self.origins = origins or {}
        self.run_dir = run_dir
        self.process = process
        self.recipe_sha256 = recipe_sha256
        self.attempt = next_attempt(run_dir)
        self.architecture = recipe.architecture
        self.data = settings_of(recipe, self.architecture)

    def run(self) -> Outcome:
        """Train to the end, or until a signal, a limit or MLPerf's target stops it."""
        schedule = self.recipe.schedule
        with contextlib.ExitStack() as stack:
            reporter = self._start(stack)
            stop = stack.enter_context(StopRequest())
            collector = stack.enter_context(
                ManualGarbageCollection(
                    enabled=schedule.manual_gc, interval=schedule.manual_gc_interval
                )
            )
            budget = evaluation_budget(self.recipe)
            mlperf = stack.enter_context(self._mlperf_log(budget))
            ready = self._ready()
            open_data = partial(
                build_loaders, self.data, rank=self.rank, world_size=self.ranks, training=True
            )
            # MLPerf's clock starts before anything touches the data set.
            loader = open_data() if mlperf is None else LateLoader(open_data)
            stack.callback(loader.close)
            evaluations = None
            if budget is not None:
                evaluations = Evaluations(self.recipe, budget, ready, self.data, self.run_dir)
                stack.callback(evaluations.close)
                reporter.progress.note(f"each evaluation: {budget}")
            checkpoints = Checkpoints(
                self.recipe, self.run_dir, self.recipe_sha256, published=reporter.checkpoint
            )
            position = self._resume(ready, loader, checkpoints, reporter)
            watch = self._first_step(ready)
            watched = self._warm_up(ready, watch, evaluations, position, reporter)
            if mlperf is not None:
                mlperf.run_start(position.samples)
            return Loop(
                self.recipe, self.run_dir, ready, loader, position, watch, reporter, checkpoints,
                evaluations, mlperf, stop, collector, watched,
            ).run()  # fmt: skip

    def run_fake(self) -> Outcome:
        """One step of rank 0 of a job whose other ranks do not exist, on synthetic data."""
        with contextlib.ExitStack() as stack:
            reporter = self._start(stack)
            ready = self._ready()
            ready.hooks.before_training()
            shape = batch_shape(
                self.recipe, self.architecture, self.recipe.schedule.micro_batch_size
            )
            watch = self._first_step(ready)
            seconds = warm_up_training(ready.train_step, shape, 1, watch.watched())
            reporter.progress.note(
                f"rank 0 of {self.process.world_size}: {ready.train_step.num_microbatches} "
                f"micro-batch(es), one step in {seconds:.1f} s"
            )
        return Outcome("finished", 0)

    def _start(self, stack: contextlib.ExitStack) -> Reporter:
        initialize_parallel_state(self.recipe)
        stack.callback(parallel_state.destroy_model_parallel)
        self.rank = parallel_state.get_data_parallel_rank()
        self.ranks = parallel_state.get_data_parallel_world_size()
        reporter = Reporter(self.recipe, self.architecture, self.run_dir, self.process)
        stack.callback(reporter.close)
        return reporter

    def _ready(self) -> Ready:
        ready = make_ready(
            self.recipe,
            self.process,
            self.data,
            data_parallel_rank=self.rank,
            num_microbatches=num_microbatches(self.recipe, self.ranks),
        )
        require_effective(self.recipe, self.origins, ready.built, self.process, self.run_dir)
        return ready

    def _first_step(self, ready: Ready) -> FirstStep:
        writes = self.process.is_first and not self.process.fake
        folder = self.run_dir if writes else None
        return FirstStep(self.recipe, ready.built.model, folder, ready.traced)

    def _resume(
        self, ready: Ready, loader: Any, checkpoints: Checkpoints, reporter: Reporter
    ) -> Position:
        ready.hooks.before_training()
        position = checkpoints.resume(
            ready.built,
            ready.forward_step,
            loader,
            ready.train_step.num_microbatches,
            self.rank,
        )
        step = position.step
        note = f"attempt {self.attempt} goes on after step {step}" if step else None
        reporter.event("attempt", note, attempt=self.attempt, step=step)
        return position

    def _warm_up(
        self,
        ready: Ready,
        watch: FirstStep,
        evaluations: Evaluations | None,
        position: Position,
        reporter: Reporter,
    ) -> bool:
        """Training first, evaluation last, on a new run only; whether a step was watched."""
        schedule = self.recipe.schedule
        if not (schedule.warmup_train_steps or schedule.warmup_validation_steps):
            return False
        if position.step > 0:
            reporter.progress.note("resumed: no warm-up")
            return False
        if schedule.warmup_train_steps:
            shape = batch_shape(self.recipe, self.architecture, schedule.micro_batch_size)
            warm_up_training(ready.train_step, shape, schedule.warmup_train_steps, watch.watched())
            reporter.event("first_step", attention=watch.attention, step=position.step)
        if schedule.warmup_validation_steps:
            if evaluations is None:
                raise SetupError(
                    "schedule.warmup_validation_steps warms up nothing: set evaluation.interval"
                )
            evaluations.warm_up(schedule.warmup_validation_steps)
        return schedule.warmup_train_steps > 0

    @contextlib.contextmanager
    def _mlperf_log(self, budget: Any) -> Iterator[MLPerfLog | None]:
        settings = self.recipe.mlperf
        if not settings.enable:
            yield None
            return
        if budget is None:
            raise SetupError("mlperf.enable needs evaluations: set evaluation.interval")
        facts = facts_of_recipe(
            self.recipe,
            data_parallel_size=self.ranks,
            eval_samples=budget.samples,
            config_filename=f"{self.recipe.name}.yaml",
        )
        problems = facts.problems(settings.ruleset)
        if problems and settings.submission_division == "closed":
            raise SetupError(
                f"mlperf: the rules of {settings.ruleset} would refuse the log of this run "
                "(mlperf.submission_division=open logs it all the same):\n  "
                + "\n  ".join(problems)
            )
        path = log_path(self.run_dir, self.attempt) if self.process.is_first else None
        if path is not None:  # of an attempt that ended before it counted as one
            path.unlink(missing_ok=True)
        with MLPerfLog(path, target=settings.target_val_loss) as log:
            log.describe(facts)
            yield log
