# SPDX-License-Identifier: Apache-2.0
"""Evaluation in whole runs on two ranks: what must not change a bit, and a log that ends once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from training_runs import events, make_run

from mxflux.data.settings import SampleShape
from mxflux.data.synth import synthesise

if TYPE_CHECKING:
    from pathlib import Path

    from training_runs import Server

SHAPE = SampleShape(channels=16, height=4, width=4, text_length=4, context_dim=32, vec_in_dim=32)
RECIPE = """\
name: tiny
device: cpu
launch: {nproc_per_node: 2}
model: {preset: flux_tiny}
precision: {params_dtype: float32}
data: {kind: energon, image_size: 32, text_length: 4, num_workers: 0}
schedule: {train_iters: 4, micro_batch_size: 8, global_batch_size: 16, seed: 7}
optimizer: {lr: 4.0e-3, lr_warmup_iters: 2}
parallel: {distributed_backend: gloo, overlap_grad_reduce: true, overlap_param_gather: true}
checkpoint: {save_final: false}
evaluation: {interval: 2, samples: 64, micro_batch_size: 16, global_batch_size: 32}
"""
PAIRS = ((0, "false", 0), (2, "true", 0), (2, "false", 1), (0, "true", 1))
MLPERF = (
    RECIPE.replace("energon", "digits").replace(", num_workers: 0", "")
    + """\
mlperf:
  enable: true
  submission_division: open
  submission_org: o
  submission_platform: p
  train_samples: 1573
"""
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 samples for training and 64 for validation, in shards on disk."""
    folder = tmp_path_factory.mktemp("data") / "set"
    synthesise(
        folder, SHAPE, samples=64, validation_samples=64, latent_keys=("latents",), shard_size=16
    )
    return folder


def test_no_warm_up_prefetch_or_worker_changes_a_bit(
    server: Server, tmp_path: Path, data: Path
) -> None:
    """Warmed and not, prefetched and not, none and one worker: the very same losses.

    Four runs hold every pair of settings; all eight: docs/results/warmup-prefetch-workers.md.
    """
    losses = {}
    for warm, prefetch, workers in PAIRS:
        name = f"warm-{warm}-prefetch-{prefetch}-workers-{workers}"
        overrides = (
            f"data.path={data}",
            f"data.val_num_workers={workers}",
            f"evaluation.prefetch={prefetch}",
            f"schedule.warmup_train_steps={warm}",
            f"schedule.warmup_validation_steps={warm}",
        )
        run = server.finish(make_run(tmp_path / name, *overrides, recipe=RECIPE))
        found = [*events(run, "evaluation"), *events(run, "train")]
        losses[name] = [event["loss"].hex() for event in found]
    assert len(losses) == len(PAIRS)
    assert len({tuple(found) for found in losses.values()}) == 1, losses
    assert len(next(iter(losses.values()))) == 6


def keys(run: Path) -> list[tuple[str, str | None]]:
    """Key and status of each line of the run's MLPerf log."""
    lines = (run / "mlperf" / "attempt-1" / "result_0.txt").read_text("utf-8").splitlines()
    found = [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]
    return [(event["key"], event["metadata"].get("status")) for event in found]


def test_a_run_that_reaches_the_target_stops_there(server: Server, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "mlperf.target_val_loss=9", recipe=MLPERF)
    log = run / "mlperf" / "attempt-1" / "result_0.txt"
    log.parent.mkdir(parents=True)
    log.write_text("of an attempt that ended before its start was noted\n", "utf-8")
    server.finish(run)
    found = keys(run)
    assert found[-1] == ("run_stop", "success")
    assert [key for key, _ in found].count("run_stop") == 1
    assert [event["step"] for event in events(run, "train")] == [1, 2]
    order = [key for key, _ in found if key in {"init_stop", "run_start", "block_start"}]
    assert order == ["init_stop", "run_start", "block_start"]


@pytest.mark.parametrize("how", ["budget", "signal", "sibling"])
def test_a_run_that_does_not_reach_it_ends_its_log_once(
    server: Server, tmp_path: Path, how: str
) -> None:
    """The budget ends, the job is stopped, or the other rank is killed and rank 0 with it."""
    more = () if how == "budget" else ("schedule.train_iters=4000", "evaluation.interval=3000")
    run = make_run(tmp_path / "run", "mlperf.target_val_loss=1e-9", *more, recipe=MLPERF)
    options = {
        "budget": {},
        "signal": {"signal_at_step": 2},
        "sibling": {"kill_at_step": 2, "kill_ranks": [1]},
    }
    answer = server.run(run, **options[how])
    assert (answer["codes"] == [0, 0]) == (how != "sibling"), answer["outputs"]
    found = keys(run)
    assert found[-1] == ("run_stop", "aborted")
    assert [key for key, _ in found].count("run_stop") == 1
