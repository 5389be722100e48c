# SPDX-License-Identifier: Apache-2.0
"""MLPerf logs: keys and values, run_start and run_stop exactly once however a run ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from mlperf_support import BLOCK, facts, write_run

from mxflux.evaluation.mlperf_guardian import finish, keys_of
from mxflux.evaluation.mlperf_log import MLPerfLog, log_path

pytest.importorskip("mlperf_logging", reason="mlperf-logging is not installed")

OVERLAY = Path(__file__).parents[3] / "overlay"


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in path.read_text().splitlines()]


def value(path: Path, key: str) -> Any:
    (found,) = [event["value"] for event in events(path) if event["key"] == key]
    return found


# -- what the log says ----------------------------------------------------------------------


def test_order_of_a_run_that_reaches_the_target(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    write_run(path)
    order = [event["key"] for event in events(path) if event["key"].endswith(("start", "stop"))]
    evaluation = ["block_stop", "eval_start", "eval_stop"]
    assert order == [
        "init_start", "init_stop", "run_start", "block_start",
        *evaluation, "block_start", *evaluation, "block_start", *evaluation, "run_stop",
    ]  # fmt: skip
    last = events(path)[-1]
    assert last["metadata"]["status"] == "success"
    assert last["metadata"]["samples_count"] == 3 * BLOCK


def test_values_of_the_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    write_run(path, schedule__global_batch_size=2304, schedule__micro_batch_size=32,
              evaluation__interval=114, ranks=72)  # fmt: skip
    expected = {
        "submission_benchmark": "flux1",
        "evaluation_frequency": 262_656,
        "gradient_accumulation_steps": 1,
        "opt_learning_rate_warmup_steps": 1600,
        "opt_gradient_clip_norm": 1.0,
        "opt_adamw_epsilon": 1e-8,
        "cache_clear": True,
        "train_samples": 1_099_776,
        "eval_samples": 29_696,
        "config_filename": "recipe.yaml",
    }
    assert {key: value(path, key) for key in expected} == expected
    starts = [e["metadata"]["samples_count"] for e in events(path) if e["key"] == "block_start"]
    assert starts == [0, BLOCK, 2 * BLOCK]


def test_accumulation_counts_the_ranks() -> None:
    assert facts(ranks=8).values["gradient_accumulation_steps"] == 2
    assert facts(ranks=16).values["gradient_accumulation_steps"] == 1


def test_lines_name_no_folder_of_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    write_run(path)
    files = {event["metadata"]["file"] for event in events(path)}
    assert files == {"mxflux/evaluation/mlperf_log.py"}


@pytest.mark.parametrize(
    ("changes", "linear", "attention", "communication"),
    [
        ({}, "bfloat16", "bfloat16", "bfloat16"),
        ({"params_dtype": "float32"}, "fp32", "fp32", "fp32"),
        ({"params_dtype": "float32", "grad_reduce_in_bf16": True}, "fp32", "fp32", "bfloat16"),
        ({"fp4": "e2m1"}, "mxfp4", "bfloat16", "bfloat16"),
        ({"fp6": "e2m3"}, "mxfp6", "bfloat16", "bfloat16"),
        ({"fp6": "e3m2", "mx_backward_precision": "mxfp4"}, "mxfp4", "bfloat16", "bfloat16"),
        ({"fp6": "e2m3", "mx_backward_precision": "mxfp8_e5m2"}, "mxfp6", "bfloat16", "bfloat16"),
        ({"fp8": "hybrid"}, "fp8", "bfloat16", "bfloat16"),
        ({"fp8": "e4m3", "fp8_dot_product_attention": True}, "fp8", "fp8", "bfloat16"),
    ],
)
def test_the_coarsest_precision_is_stated(
    changes: dict[str, Any], linear: str, attention: str, communication: str
) -> None:
    values = facts(**{f"precision__{key}": value for key, value in changes.items()}).values
    kinds = ("linear", "attn", "comm")
    assert [values[f"lowest_numerical_precision_in_{kind}"] for kind in kinds] == [
        linear, attention, communication,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ruleset", "changes", "problem"),
    [
        ("6.1.0", {"optimizer__adam_beta2": 0.999}, "opt_adamw_beta_2 is 0.999, not 0.95"),
        ("6.1.0", {"optimizer__clip_grad": 0.0}, "opt_gradient_clip_norm is 0.0, not 1.0"),
        ("6.1.0", {"evaluation__interval": 10}, "evaluation_frequency is 5120 samples, not 262144"),
        ("6.1.0", {"evaluation__interval": None}, "evaluation_frequency is 0 samples"),
        ("6.1.0", {"mlperf__target_val_loss": 0.6}, "target_val_loss is 0.6, more than 0.586"),
        ("6.1.0", {"mlperf__submission_org": None}, "submission_org is empty"),
        ("6.0.0", {"precision__fp6": "e2m3"}, "the rules of 6.0.0 know no mxfp6"),
        (
            "6.0.0",
            {"schedule__global_batch_size": 2304, "evaluation__interval": 114},
            "evaluation_frequency is 262656 samples, not 262144",
        ),
    ],
)
def test_what_the_rules_refuse_is_known_before_the_run(
    ruleset: str, changes: dict[str, Any], problem: str
) -> None:
    (found,) = facts(**changes).problems(ruleset)
    assert problem in found
    assert facts().problems(ruleset) == []


def test_problems_come_all_at_once() -> None:
    changes = {"optimizer__adam_beta1": 0.5, "optimizer__weight_decay": 0.0}
    assert len(facts(**changes).problems("6.1.0")) == 2


# -- exactly once ---------------------------------------------------------------------------


def test_the_end_of_the_budget_is_an_aborted_run(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    write_run(path, losses=(0.9, 0.8))
    assert keys_of(path).count("run_stop") == 1
    assert events(path)[-1]["metadata"]["status"] == "aborted"


@pytest.mark.parametrize("error", [ValueError("loss is nan"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_ends_the_run_once(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "result_0.txt"
    with pytest.raises(type(error)), MLPerfLog(path, target=0.586, guard=False) as log:
        log.run_start()
        raise error
    last = events(path)[-1]
    assert (last["key"], last["metadata"]["status"]) == ("run_stop", "aborted")
    assert last["metadata"]["reason"] == type(error).__name__
    assert keys_of(path).count("run_stop") == 1


def test_a_run_that_never_started_has_no_end(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    with MLPerfLog(path, target=0.586):
        pass
    assert keys_of(path) == ["cache_clear", "init_start"]


def test_a_second_start_is_refused_and_a_second_stop_ignored(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    with MLPerfLog(path, target=0.586, guard=False) as log:
        log.run_start()
        with pytest.raises(RuntimeError, match="starts once"):
            log.run_start()
        log.run_stop("success")
        log.run_stop("aborted")
    assert keys_of(path).count("run_stop") == 1
    assert events(path)[-1]["metadata"]["status"] == "success"


def test_other_ranks_decide_the_same_without_a_file(tmp_path: Path) -> None:
    logs = [MLPerfLog(path, target=0.586, guard=False) for path in (tmp_path / "r.txt", None)]
    answers = []
    for log in logs:
        with log:
            log.describe(facts())
            log.run_start()
            answers.append([log.evaluation_stop(BLOCK, loss) for loss in (0.5861, 0.586)])
            answers.append(log.status)
    assert answers == [[False, True], "success", [False, True], "success"]


def test_every_attempt_has_a_log_of_its_own(tmp_path: Path) -> None:
    assert log_path(tmp_path, 2) == tmp_path / "mlperf" / "attempt-2" / "result_0.txt"


# -- what no code in the process can report -------------------------------------------------

_RANK = """
    import os, signal, sys, time
    from pathlib import Path
    from mxflux.evaluation.mlperf_log import MLPerfLog

    with MLPerfLog(Path(sys.argv[1]), target=0.5) as log:
        log.run_start()
        if os.fork() == 0:  # a loader's worker, which holds the guardian's pipe open
            time.sleep(8)
            os._exit(0)
        print("ready", flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_the_guardian_ends_the_log_of_a_process_that_was_killed(
    tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "result_0.txt"
    rank = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_RANK), str(path)],
        env={**os.environ, "PYTHONPATH": str(OVERLAY)}, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert rank.stdout is not None
    assert rank.stdout.readline() == "ready\n"
    os.kill(rank.pid, number)
    rank.wait(timeout=10)
    deadline = time.monotonic() + 10
    while "run_stop" not in keys_of(path) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(rank.pid, signal.SIGKILL)  # the forked worker
    rank.stdout.close()
    assert keys_of(path).count("run_stop") == 1
    assert events(path)[-1]["metadata"]["status"] == "aborted"
    assert events(path)[-1]["metadata"]["reason"] == "process died"


def test_a_line_that_was_cut_off_does_not_swallow_the_end(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    write_run(path, losses=())
    whole = path.read_text().splitlines(keepends=True)
    path.write_text("".join(whole[:-1]) + whole[-1][:20])
    assert "run_stop" not in keys_of(path)
    assert finish(path)
    assert keys_of(path)[-1] == "run_stop"
    assert not finish(path)


def test_a_run_that_ended_by_itself_gets_no_second_end(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    with MLPerfLog(path, target=0.586) as log:
        log.run_start()
    assert keys_of(path).count("run_stop") == 1


def test_a_log_without_its_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlperf_logging.mllog.mllog", None)
    with pytest.raises(ImportError, match=r"mlperf-logging.*\./mxtree install"):
        MLPerfLog(tmp_path / "result_0.txt", target=0.586)
