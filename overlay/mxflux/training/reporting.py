# SPDX-License-Identifier: Apache-2.0
"""From step results to metrics.jsonl, the terminal and, where asked for, TensorBoard and W&B."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .flops import PEAK_BF16_TFLOPS, training_flops
from .metrics import MetricsLog
from .progress import Progress, Report
from .trackers import Trackers

if TYPE_CHECKING:
    from pathlib import Path

    from mxflux.evaluation.evaluator import EvaluationResult
    from mxflux.flux.architecture import FluxArchitecture
    from mxflux.recipe.schema import Recipe

    from .process import Process
    from .step import StepResult


class Reporter:
    """Writes what rank 0 has to say; on other ranks it writes nothing."""

    def __init__(
        self, recipe: Recipe, arch: FluxArchitecture, run_dir: Path, process: Process
    ) -> None:
        self.recipe = recipe
        self.arch = arch
        self.run_dir = run_dir
        first = process.is_first and not process.fake
        self.metrics = MetricsLog(run_dir, enabled=first)
        self.progress = Progress(recipe.schedule.train_iters, enabled=process.is_first)
        self.trackers = Trackers(recipe, run_dir, enabled=first)
        self._gpus = process.world_size
        self._since = time.perf_counter()
        self._steps = 0

    def start_clock(self) -> None:
        """Measure from now: what came before (set-up, evaluation, saving) is not training."""
        self._since, self._steps = time.perf_counter(), 0

    def step(
        self, step: int, samples: int, result: StepResult, tokens: tuple[int, int],
        more: dict[str, Any],
    ) -> None:  # fmt: skip
        """Note a step; lines appear at the logging interval, with the mean since the last."""
        self._steps += 1
        last = step == self.recipe.schedule.train_iters
        if step % self.recipe.logging.interval and not last:
            return
        seconds = (time.perf_counter() - self._since) / self._steps
        speed = self._speed(seconds, tokens)
        fields = {
            "loss": result.loss,
            "lr": result.learning_rate,
            "grad_norm": result.grad_norm,
            "step_seconds": seconds,
            **speed,
            **more,
        }
        self.metrics.write("train", step=step, samples=samples, **fields)
        self.trackers.write("train", step, fields)
        steps = self.recipe.schedule.train_iters
        self.progress.report(
            Report(
                step, steps, result.loss, result.learning_rate,
                speed["images_per_second_per_gpu"], speed["tflops_per_gpu"], speed["peak_share"],
                (steps - step) * seconds,
            )
        )  # fmt: skip
        self.start_clock()

    def event(self, event: str, note: str | None = None, **fields: Any) -> None:
        """Write another event, with a line on the terminal where there is something to read."""
        self.metrics.write(event, **fields)
        if event == "evaluation":
            self.trackers.write(event, fields["step"], fields)
        if note is not None:
            self.progress.note(note)

    def evaluation(self, result: EvaluationResult, samples: int) -> None:
        """Note an evaluation, and take its time off the next steps'."""
        self.event(
            "evaluation",
            f"evaluation after step {result.step}: loss {result.loss:.6f} over {result.count} "
            f"samples in {result.seconds:.1f} s",
            step=result.step,
            samples=samples,
            loss=result.loss,
            count=result.count,
            per_timestep=result.per_timestep,
            seconds=result.seconds,
            **result.probes,
        )
        self.start_clock()

    def checkpoint(self, step: int, path: Path, seconds: float) -> None:
        """Note a checkpoint that is complete."""
        self.event(
            "checkpoint",
            f"checkpoint of step {step} in {seconds:.1f} s",
            step=step,
            path=str(path.relative_to(self.run_dir)),
            seconds=seconds,
        )

    def close(self) -> None:
        """Close everything."""
        self.progress.close()
        self.trackers.close()
        self.metrics.close()

    def _speed(self, seconds: float, tokens: tuple[int, int]) -> dict[str, Any]:
        images = self.recipe.schedule.global_batch_size / self._gpus / seconds
        text, image = tokens
        tflops = images * training_flops(self.arch, image, text) / 1e12
        peak = self._peak()
        return {
            "images_per_second_per_gpu": images,
            "tflops_per_gpu": tflops,
            "peak_share": None if peak is None else tflops / peak,
        }

    def _peak(self) -> float | None:
        """The recipe's own number, else the device's dense BF16 peak."""
        own = self.recipe.logging.peak_tflops_per_gpu
        return own if own is not None else PEAK_BF16_TFLOPS.get(self.recipe.device)
