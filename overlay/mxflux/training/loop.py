# SPDX-License-Identifier: Apache-2.0
"""The training loop: steps, and what is due between them."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mxflux.evaluation.errors import EvaluationResultError

from .errors import NonFiniteError
from .probes import TimedBatches, TrainProfile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mxflux.evaluation.mlperf_log import MLPerfLog
    from mxflux.recipe.schema import Recipe

    from .evaluating import Evaluations
    from .first_step import FirstStep
    from .garbage import ManualGarbageCollection
    from .reporting import Reporter
    from .saving import Checkpoints, Position
    from .setup import Ready
    from .signals import StopRequest
    from .step import StepResult


@dataclass(frozen=True)
class Outcome:
    """How a run ended: finished, or stopped for a reason."""

    status: str
    step: int
    reason: str | None = None


@dataclass
class Loop:
    """One run's loop on one rank; ``position`` is where it starts, and then where it is."""

    recipe: Recipe
    run_dir: Path
    ready: Ready
    loader: Any
    position: Position
    first_step: FirstStep
    reporter: Reporter
    checkpoints: Checkpoints
    evaluations: Evaluations | None
    mlperf: MLPerfLog | None
    stop: StopRequest
    collector: ManualGarbageCollection
    watched: bool = False
    """Whether a step of this process has been checked already."""

    def run(self) -> Outcome:
        """Train to the last step, or until something stops it; save at the end."""
        last = self.recipe.schedule.train_iters
        batches = TimedBatches(iter(self.loader))
        profile = TrainProfile(self.recipe.probes, self.run_dir, self._rank)
        outcome = None
        if self.position.step == 0 and self._evaluate():
            outcome = Outcome("finished", 0)
        self.reporter.start_clock()
        self._begun = time.monotonic()
        while outcome is None and self.position.step < last:
            profile.before_step(self.position.step + 1)
            with self._writing_to_its_end():
                result = self._step(batches)
                profile.after_step(self.position.step)
                outcome = self._between_steps(result)
        profile.close()
        return self._end(outcome or Outcome("finished", self.position.step))

    @contextlib.contextmanager
    def _writing_to_its_end(self) -> Iterator[None]:
        """What ends the run on every rank alike does not lose what is still being written."""
        try:
            yield
        except (NonFiniteError, EvaluationResultError):
            # Not the step itself: a run that went on after it would never evaluate it.
            self.checkpoints.close()
            raise

    @property
    def _rank(self) -> int:
        return self.ready.train_step.process.rank

    def _step(self, batches: TimedBatches) -> StepResult:
        step = self.position.step + 1
        watch = contextlib.nullcontext() if self.watched else self.first_step.watched()
        with watch:
            result = self.ready.train_step(
                batches, step, stop_requested=self._limit_reached() or self.stop.reason is not None
            )
        self.position.step = step
        self.position.samples += self.ready.train_step.samples
        self.ready.hooks.after_step()
        if not self.watched:
            self.watched = True
            self.reporter.event("first_step", attention=self.first_step.attention, step=step)
        more: dict[str, Any] = {}
        if self.recipe.probes.batch_fetch_timing:
            more["fetch_seconds"] = batches.take_seconds()
        tokens = self.ready.forward_step.tokens
        self.reporter.step(step, self.position.samples, result, tokens, more)
        if self.mlperf is not None and step % self.recipe.mlperf.log_interval == 0:
            self.mlperf.throughput(self.position.samples)
        return result

    def _between_steps(self, result: StepResult) -> Outcome | None:
        step = self.position.step
        self.collector.after_step(step)
        self.checkpoints.poll()
        if self._evaluate():
            return Outcome("finished", step)
        if step == self.recipe.schedule.train_iters:
            return Outcome("finished", step)
        reason = self._reason_to_stop(result)
        if reason is not None:
            return Outcome("stopped", step, reason)
        if self.checkpoints.is_due(step):
            self._save()
        return None

    def _evaluate(self) -> bool:
        """Evaluate when it is due; whether MLPerf's target is reached."""
        step, samples = self.position.step, self.position.samples
        if self.evaluations is None or not self.evaluations.is_due(step):
            return False
        collects = self.recipe.schedule.manual_gc_eval
        if collects:
            self.collector.now()
        if self.mlperf is not None:
            self.mlperf.evaluation_start(samples)
        result = self.evaluations.run(step)
        reached = self.mlperf is not None and self.mlperf.evaluation_stop(samples, result.loss)
        self.reporter.evaluation(result, samples)
        if collects:
            self.collector.now()
        return reached

    def _limit_reached(self) -> bool:
        """Whether this rank's clock says that the run has lasted long enough."""
        minutes = self.recipe.schedule.exit_duration_in_mins
        return minutes is not None and time.monotonic() - self._begun >= 60 * minutes

    def _reason_to_stop(self, result: StepResult) -> str | None:
        interval = self.recipe.schedule.exit_interval
        if result.stop and self._limit_reached():
            return f"schedule.exit_duration_in_mins={self.recipe.schedule.exit_duration_in_mins}"
        if result.stop:
            return self.stop.reason or "another rank was asked to stop"
        if interval is not None and self.position.step % interval == 0:
            return f"schedule.exit_interval={interval}"
        return None

    def _end(self, outcome: Outcome) -> Outcome:
        self._save_the_end()
        self.checkpoints.close()
        if outcome.status == "stopped" and self.checkpoints.saved_step != outcome.step:
            reason = f"{outcome.reason}; not saved (checkpoint.save_final=false)"
            outcome = replace(outcome, reason=reason)
        if outcome.status == "stopped":
            self.reporter.event(
                "stop",
                f"stopped after step {outcome.step}: {outcome.reason}",
                step=outcome.step,
                reason=outcome.reason,
            )
        return outcome

    def _save_the_end(self) -> None:
        """Save where the run ends, unless the recipe has it that nothing is saved there."""
        step = self.position.step
        if self.recipe.checkpoint.save_final or (step > 0 and self.checkpoints.is_due(step)):
            self._save()

    def _save(self) -> None:
        with self.ready.hooks.parameters_complete():
            self.checkpoints.save(
                self.position, self.ready.built, self.ready.forward_step, self.loader
            )
        self.reporter.start_clock()
