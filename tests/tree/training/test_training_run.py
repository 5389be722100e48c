# SPDX-License-Identifier: Apache-2.0
"""Whole runs on two gloo ranks: what they write, how they stop, that they resume bit for bit."""

from __future__ import annotations

import json
import random
import signal
import time
from typing import TYPE_CHECKING

import pytest
from training_runs import Server, copy_up_to, events, make_run, processes_with, trace

from mxflux.checkpoint.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 12


def test_loss_falls_well_below_the_constant_predictor(whole: Path) -> None:
    """Noise has unit variance: predicting a constant costs more than 1."""
    losses = [event["loss"] for event in events(whole, "train")]
    assert len(losses) == STEPS
    assert losses[0] > 1.0
    assert losses[-1] < 0.8


def test_a_run_writes_what_the_report_reads(whole: Path) -> None:
    event = events(whole, "train")[4]
    assert (event["step"], event["samples"]) == (5, 160)
    assert event["lr"] == pytest.approx(4e-3)
    assert event["grad_norm"] > 0
    assert event["images_per_second_per_gpu"] > 0
    assert event["tflops_per_gpu"] > 0
    assert event["peak_share"] is None
    assert [e["step"] for e in events(whole, "evaluation")] == [4, 8, 12]
    assert {e["count"] for e in events(whole, "evaluation")} == {224}
    assert [e["step"] for e in events(whole, "checkpoint")] == [4, 8, 12]
    assert events(whole, "attempt")[0]["step"] == 0
    assert events(whole, "stop") == []
    assert json.loads((whole / "census.json").read_text("utf-8")) == {"expected": []}
    assert json.loads((whole / "fusions.json").read_text("utf-8")) == []
    assert verify((whole / "latest").resolve()).tensors


def test_a_run_resumes_bit_identically(server: Server, whole: Path, tmp_path: Path) -> None:
    resumed = server.finish(copy_up_to(whole, tmp_path / "run", 4))
    again = trace(resumed)
    assert set(again) >= {5, STEPS, ("evaluation", STEPS)}
    assert again == {key: value for key, value in trace(whole).items() if key in again}


def test_a_finished_run_does_nothing_more(server: Server, whole: Path, tmp_path: Path) -> None:
    run = server.finish(copy_up_to(whole, tmp_path / "run", STEPS))
    assert events(run, "train") == []
    assert events(run, "checkpoint") == []


def test_sigterm_finishes_the_step_saves_and_exits_0(
    server: Server, whole: Path, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", "checkpoint.save_interval=null")
    server.finish(run, signal_at_step=3)
    stop = events(run, "stop")[0]
    assert stop["step"] >= 3
    assert stop["reason"] == "received SIGTERM"
    assert [e["step"] for e in events(run, "checkpoint")] == [stop["step"]]
    server.finish(run)
    assert [e["attempt"] for e in events(run, "attempt")] == [1, 2]
    assert trace(run) == trace(whole)


def test_without_a_final_save_a_stop_says_so_and_what_is_due_is_saved(
    server: Server, tmp_path: Path
) -> None:
    off = ("checkpoint.save_final=false", "evaluation.interval=null", "evaluation.samples=null",
           "evaluation.micro_batch_size=null", "evaluation.global_batch_size=null")  # fmt: skip
    stopped = make_run(tmp_path / "stopped", *off, "checkpoint.save_interval=null")
    server.finish(stopped, signal_at_step=2)
    reason = events(stopped, "stop")[0]["reason"]
    assert reason == "received SIGTERM; not saved (checkpoint.save_final=false)"
    assert events(stopped, "checkpoint") == []
    due = server.finish(make_run(tmp_path / "due", *off, "checkpoint.save_interval=6"))
    assert [e["step"] for e in events(due, "checkpoint")] == [6, STEPS]


def test_killed_ranks_resume_with_the_loss_of_a_whole_run(
    server: Server, whole: Path, tmp_path: Path
) -> None:
    """The script benchmarks/killed_runs.py does the same ten times, on a longer run."""
    run = make_run(tmp_path / "run", "checkpoint.save_interval=2")
    for step, ranks in ((3, [0, 1]), (7, [1])):
        answer = server.run(
            run, kill_at_step=step, kill_delay=random.uniform(0, 0.4), kill_ranks=ranks
        )
        assert answer["codes"][1] == -signal.SIGKILL
    server.finish(run)
    assert len(events(run, "attempt")) == 3
    assert trace(run) == trace(whole)


def test_a_killed_rank_leaves_no_process_behind(server: Server, tmp_path: Path) -> None:
    """Checkpoint writers have a helper process, which must not outlive its rank."""
    run = make_run(tmp_path / "run", "checkpoint.save_interval=1")
    mark = {"MXTREE_TEST_RUN": str(run)}
    server.run(run, world=1, kill_at_step=3, environment=mark)
    assert events(run, "checkpoint")
    deadline = time.monotonic() + 20
    while (left := processes_with("MXTREE_TEST_RUN", str(run))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def test_saving_in_the_background_changes_nothing(
    server: Server, whole: Path, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", "checkpoint.async_save=true", "checkpoint.keep=2")
    server.finish(run)
    assert trace(run) == trace(whole)
    saved = events(run, "checkpoint")
    assert [event["step"] for event in saved] == [4, 8, 12]
    assert all(event["seconds"] > 0 for event in saved)
    kept = sorted(path.name for path in (run / "checkpoints").glob("iter_*"))
    assert kept == ["iter_0000008", "iter_0000012"]
    assert verify((run / "latest").resolve()).tensors


def test_finetune_takes_the_weights_alone(server: Server, whole: Path, tmp_path: Path) -> None:
    run = make_run(
        tmp_path / "run", f"checkpoint.load={whole}", "checkpoint.finetune=true",
        "evaluation.at_start=true", "schedule.train_iters=3", "checkpoint.save_interval=null",
    )  # fmt: skip
    server.finish(run)
    assert trace(run)["evaluation", 0] == trace(whole)["evaluation", STEPS]
    assert [event["samples"] for event in events(run, "train")] == [32, 64, 96]
    assert events(run, "train")[0]["lr"] == 0.0


def test_another_runs_checkpoint_is_continued(server: Server, whole: Path, tmp_path: Path) -> None:
    """Its steps go on counting; what was loaded stays untouched."""
    source = whole / "checkpoints" / "iter_0000008"
    run = make_run(tmp_path / "run", f"checkpoint.load={source}")
    server.finish(run)
    again = trace(run)
    assert min(step for step in again if isinstance(step, int)) == 9
    assert again == {key: value for key, value in trace(whole).items() if key in again}


def test_a_checkpoint_of_another_model_is_refused_with_every_size(
    server: Server, whole: Path, tmp_path: Path
) -> None:
    before = sorted(path.name for path in whole.rglob("*"))
    run = make_run(
        tmp_path / "run", f"checkpoint.load={whole}", "model.ffn_hidden_size=256",
        "model.num_single_layers=2",
    )  # fmt: skip
    answer = server.run(run)
    assert answer["codes"] == [3, 3]
    for output in answer["outputs"]:
        assert "iter_0000012: another architecture (checkpoint != model):" in output
        assert "  ffn_hidden_size: 512 != 256" in output
        assert "  num_single_layers: 1 != 2" in output
        assert "Traceback" not in output
    assert sorted(path.name for path in whole.rglob("*")) == before
    assert not (run / "checkpoints").exists()
