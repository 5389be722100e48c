# SPDX-License-Identifier: Apache-2.0
"""Run directories as the launcher and the trainer write them, with losses that a test chooses."""

from __future__ import annotations

import hashlib
import json
import math
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mxflux.reports.page import Page

BATCH = 16
LINEARS = ("transformer.layers.0.mlp.linear_fc1", "transformer.layers.0.mlp.linear_fc2")
RECIPE = """\
name: {name}
device: cpu
precision:
  params_dtype: bfloat16
  fp4: {fp4}
  mx_backward_precision: null
schedule:
  train_iters: {steps}
  global_batch_size: {batch}
  seed: {seed}
"""


def falling(step: int) -> float:
    """A loss curve."""
    return 0.4 + 1.6 * math.exp(-step / 40)


def make_run(
    root: Path,
    name: str = "run",
    *,
    seed: int = 1,
    steps: int = 120,
    batch: int = BATCH,
    loss: Callable[[int], float] = falling,
    noise: float = 0.02,
    fp4: str = "null",
    status: str = "finished",
) -> Path:
    """Write a whole run directory: two attempts, the first of which died and was repeated from."""
    run = root / name
    (run / "checkpoints" / "iter_0000100").mkdir(parents=True)
    (run / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("100\n")
    recipe = RECIPE.format(name=name, fp4=fp4, steps=steps, batch=batch, seed=seed)
    (run / "recipe.yaml").write_text(recipe)
    write(run, "run.json", record(name, recipe, status))
    draws = random.Random(seed)
    lines = [json.dumps(e) for e in events(steps, batch, lambda s: loss(s) + draws.gauss(0, noise))]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    write(run, "census.json", census("e2m1") if fp4 != "null" else {"expected": []})
    write(run, "fusions.json", [gate("fused_norm_rope", "on", 4)])
    write(run, "effective.json", [effective("optimizer.lr", 2e-4, "ok")])
    return run


def write(run: Path, name: str, value: Any) -> None:
    """Write a JSON file of a run."""
    (run / name).write_text(json.dumps(value))


def record(name: str, recipe: str, status: str = "finished") -> dict[str, Any]:
    """run.json."""
    died = {
        "started": "2026-11-30T00:00:00Z", "ended": "2026-11-30T00:10:00Z", "status": "failed",
        "exit_code": 3, "first_step": 0, "reason": "rank 1 died",
    }  # fmt: skip
    return {
        "format": 1, "name": name, "recipe_sha256": hashlib.sha256(recipe.encode()).hexdigest(),
        "tree_digest": "ab" * 32, "overlay_digest": "cd" * 32, "mxtree_version": "0.1",
        "argv": ["mxtree", "run"], "world_size": 2, "device": "cpu", "status": status,
        "environment_delta": {"set": {"NVTE_FUSED_ATTN": "1"}, "unset": {"NVTE_FLASH_ATTN": "0"}},
        "versions": {"torch": "2.13.0"},
        "attempts": [died, {**died, "status": status, "exit_code": 0, "reason": None}],
    }  # fmt: skip


def events(steps: int, batch: int, loss: Callable[[int], float]) -> list[dict[str, Any]]:
    """metrics.jsonl: ten steps are trained twice, the first time with a loss of 9."""
    found: list[dict[str, Any]] = [{"event": "attempt", "attempt": 1, "step": 0}]
    middle = steps // 2
    found += [train(step, batch, loss(step)) for step in range(1, middle)]
    found += [train(step, batch, 9.0) for step in range(middle, middle + 10)]
    found.append({"event": "attempt", "attempt": 2, "step": middle - 1})
    for step in range(middle, steps + 1):
        found.append(train(step, batch, loss(step)))
        if step % 20 == 0:
            found.append(evaluation(step, batch, loss(step)))
    return [*found, {"event": "checkpoint", "step": 100, "path": "checkpoints/iter_0000100",
                     "seconds": 0.5}]  # fmt: skip


def train(step: int, batch: int, loss: float) -> dict[str, Any]:
    """A training line."""
    return {
        "event": "train", "step": step, "samples": step * batch, "loss": loss, "lr": 2e-4,
        "grad_norm": 1.0 / step, "step_seconds": 0.1, "images_per_second_per_gpu": 80.0 + step % 3,
        "tflops_per_gpu": 0.5, "peak_share": None, "time": 0.0,
    }  # fmt: skip


def evaluation(step: int, batch: int, loss: float) -> dict[str, Any]:
    """An evaluation line."""
    return {
        "event": "evaluation", "step": step, "samples": step * batch, "loss": loss, "count": 64,
        "seconds": 0.3, "per_timestep": {str(level): loss for level in range(8)},
    }  # fmt: skip


def census(fmt: str, linears: tuple[str, ...] = LINEARS) -> dict[str, Any]:
    """census.json with all three GEMMs of ``linears`` in ``fmt``."""
    entry = {"format": fmt, "backend": "emulated", "quantizations": 2, "gemms": 1}
    ways = {way: dict(entry) for way in ("fprop", "dgrad", "wgrad")}
    return {**dict.fromkeys(linears, ways), "expected": list(LINEARS)}


def gate(key: str, mode: str, engaged: int, **declined: int) -> dict[str, Any]:
    """A gate of fusions.json."""
    return {"key": key, "place": "joint", "mode": mode, "engaged": engaged, "traced": 0,
            "declined": declined}  # fmt: skip


def effective(key: str, value: Any, status: str) -> dict[str, Any]:
    """An entry of effective.json."""
    stages = dict.fromkeys(("requested", "arguments", "validated", "live"), value)
    return {"key": key, **stages, "origin": "recipe.yaml:3", "status": status}


def texts(page: Page, title: str) -> str:
    """Everything that a section says."""
    (section,) = [s for s in page.sections if s.title == title]
    cells = [cell.text for table in section.tables for cells in table.rows for cell in cells]
    return "\n".join([*section.text, *section.absent, *cells])
