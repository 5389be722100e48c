# SPDX-License-Identifier: Apache-2.0
"""Run directories of tiny recipes, and what their metrics say."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from mxflux.recipe.loading import load

_SHORT = """\
name: tiny
device: cpu
launch: {nproc_per_node: 2}
model:
  preset: flux_tiny
  timestep_sampling_strategy: direct_uniform
precision: {params_dtype: float32}
data: {kind: digits, image_size: 32, text_length: 4}
schedule: {train_iters: STEPS, micro_batch_size: 8, global_batch_size: 32, seed: 7}
optimizer: {lr: 4.0e-3, lr_warmup_iters: 2, weight_decay: 0.01}
parallel: {distributed_backend: gloo, overlap_grad_reduce: true, overlap_param_gather: true}
"""
LONG = (
    _SHORT.replace("STEPS", "12")
    + """\
checkpoint: {save_interval: 4}
evaluation: {interval: 4, samples: 224, micro_batch_size: 16, global_batch_size: 32}
"""
)
"""12 steps with checkpoints and evaluations."""
SHORT = _SHORT.replace("STEPS", "3") + "checkpoint: {save_final: false}\n"
"""3 steps and nothing else."""


def make_run(folder: Path, *overrides: str, recipe: str = LONG) -> Path:
    """A run directory with a tiny recipe and some other values."""
    folder.mkdir(parents=True)
    source = folder / "source.yaml"
    source.write_text(recipe, "utf-8")
    (folder / "recipe.yaml").write_bytes(load(source, overrides).dump_resolved())
    source.unlink()
    return folder


def copy_up_to(run: Path, folder: Path, step: int) -> Path:
    """The same run as a job that died after saving ``step`` left it."""
    shutil.copytree(run, folder, symlinks=True)
    checkpoints = folder / "checkpoints"
    for saved in checkpoints.glob("iter_*"):
        if int(saved.name.removeprefix("iter_")) > step:
            shutil.rmtree(saved)
    (checkpoints / "latest_checkpointed_iteration.txt").write_text(str(step), "ascii")
    (folder / "metrics.jsonl").unlink()
    return folder


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    """Events of one kind, in order."""
    lines = (run / "metrics.jsonl").read_text("utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def trace(run: Path) -> dict[Any, Any]:
    """Everything of a run that must not depend on how it was interrupted, the newest value."""
    found: dict[Any, Any] = {
        event["step"]: (event["loss"], event["grad_norm"], event["lr"], event["samples"])
        for event in events(run, "train")
    }
    found.update({("evaluation", e["step"]): e["loss"] for e in events(run, "evaluation")})
    return found


def processes_with(variable: str, value: str) -> list[int]:
    """Processes of this machine that have a variable in their environment (Linux)."""
    wanted, found = f"{variable}={value}".encode(), []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
    return found


class Server:
    """The process of ``training_server``."""

    def __init__(self) -> None:
        folders = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*folders, *filter(None, sys.path)]),
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "training_server"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._ready = False

    def run(self, folder: Path, world: int = 2, **how: Any) -> dict[str, Any]:
        """Exit codes and outputs of the ranks (see ``training_server.run``)."""
        assert self._process.stdin is not None
        if not self._ready:
            self._ready = self._answer() == "ready"
        self._process.stdin.write(
            json.dumps({"run_dir": str(folder), "world": world, **how}) + "\n"
        )
        self._process.stdin.flush()
        answer: dict[str, Any] = self._answer()
        return answer

    def finish(self, folder: Path, world: int = 2, **how: Any) -> Path:
        """Run to the end; raises AssertionError with the ranks' output when one failed."""
        answer = self.run(folder, world, **how)
        assert answer["codes"] == [0] * world, "\n".join(answer["outputs"])[-6000:]
        return folder

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server died:\n{self._process.stderr.read()[-6000:]}")
        return json.loads(line)
