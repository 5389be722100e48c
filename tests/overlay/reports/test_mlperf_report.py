# SPDX-License-Identifier: Apache-2.0
"""The official checkers on logs of our own: good ones pass, each defect is found and named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from mlperf_support import BLOCK, write_run

from mxflux.reports import mlperf
from mxflux.reports.mlperf_check import check_runs
from mxflux.reports.mlperf_order import order_problems, read_events

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest.importorskip("mlperf_logging", reason="mlperf-logging is not installed")


def without(key: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [line for line in lines if f'"{key}"' not in line]


def changed(key: str, old: str, new: str) -> Callable[[list[str]], list[str]]:
    def edit(lines: list[str]) -> list[str]:
        hit = [line.replace(old, new) if f'"{key}"' in line else line for line in lines]
        assert hit != lines
        return hit

    return edit


def moved_to_the_end(key: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: without(key)(lines) + [line for line in lines if f'"{key}"' in line]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "mlperf" / "attempt-1" / "result_0.txt"
    write_run(path, schedule__global_batch_size=512)
    return path


def edit(log: Path, change: Callable[[list[str]], list[str]]) -> None:
    lines = log.read_text().splitlines()
    edited = change(lines)
    assert edited != lines
    log.write_text("\n".join(edited) + "\n")


def test_a_synthetic_run_passes_both_rulesets(log: Path, capsys: pytest.CaptureFixture) -> None:
    assert mlperf.main([str(log.parents[2])]) == 0
    out = capsys.readouterr().out
    assert "compliance 6.0.0: passed" in out
    assert "compliance 6.1.0: passed" in out
    assert "order and counts: passed" in out
    assert "1 of the 10 runs" in out
    assert "786,432 samples  loss 0.580000" in out


@pytest.mark.parametrize(
    "key",
    ["submission_org", "evaluation_frequency", "gradient_accumulation_steps", "opt_name",
     "opt_learning_rate_warmup_steps", "opt_gradient_clip_norm", "cache_clear", "train_samples",
     "eval_samples", "run_start", "run_stop", "init_stop", "global_batch_size"],
)  # fmt: skip
def test_a_missing_key_fails_both_rulesets(log: Path, key: str) -> None:
    edit(log, without(key))
    (report,) = check_runs([log]).logs
    outcomes = {check.name: check for check in report.checks}
    for ruleset in ("6.0.0", "6.1.0"):
        assert outcomes[f"compliance {ruleset}"].outcome == "failed"
        assert key in " ".join(outcomes[f"compliance {ruleset}"].lines)


def test_keys_that_only_the_newer_rules_need_fail_only_those(log: Path) -> None:
    edit(log, without("config_filename"))
    report = check_runs([log])
    outcomes = {check.name: check.outcome for check in report.logs[0].checks}
    assert outcomes["compliance 6.0.0"] == "passed"
    assert outcomes["compliance 6.1.0"] == "failed"
    assert report.outcome == "failed"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (changed("eval_accuracy", "0.58,", "0.59,"), "eval_accuracy"),
        (changed("evaluation_frequency", "262144", "5120"), "evaluation_frequency"),
        (changed("opt_adamw_beta_2", "0.95", "0.999"), "opt_adamw_beta_2"),
        (changed("run_stop", '"status": "success"', '"state": "success"'), "run_stop"),
        (changed("block_start", '"samples_count": 0', '"first_epoch_num": 0'), "block_start"),
    ],
)
def test_a_wrong_value_fails_both_rulesets(
    log: Path, change: Callable[[list[str]], list[str]], named: str
) -> None:
    edit(log, change)
    (report,) = check_runs([log]).logs
    for check in report.checks[:2]:
        assert check.outcome == "failed"
        assert named in " ".join(check.lines)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda lines: [*lines, lines[-1]], "run_stop occurs 2 times"),
        (without("run_stop"), "run_stop occurs 0 times"),
        (moved_to_the_end("block_stop"), "block_start and block_stop do not alternate"),
        (moved_to_the_end("eval_start"), "eval_start and eval_stop do not alternate"),
        (moved_to_the_end("eval_samples"), "eval_samples comes after run_stop"),
        (moved_to_the_end("run_start"), "eval_accuracy comes before run_start"),
        (moved_to_the_end("init_start"), "init_start does not come before run_start"),
        (
            changed("eval_accuracy", str(2 * BLOCK), str(2 * BLOCK - 512)),
            "evaluation 2 comes after 261632 samples, not evaluation_frequency = 262144",
        ),
        (changed("eval_accuracy", "0.58,", "0.9,"), "run_stop says success"),
        (changed("run_stop", '"time_ms": 1', '"time_ms": 0.1'), "time_ms goes back"),
    ],
)
def test_order_and_counts(
    log: Path, change: Callable[[list[str]], list[str]], problem: str
) -> None:
    assert order_problems(read_events(log)) == []
    edit(log, change)
    assert problem in "; ".join(order_problems(read_events(log)))


def test_a_budget_may_end_between_evaluations(log: Path) -> None:
    edit(log, changed("eval_accuracy", str(3 * BLOCK), str(2 * BLOCK + 512)))
    assert order_problems(read_events(log)) == []


def test_ten_runs_are_checked_for_convergence(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    for number in range(10):
        write_run(tmp_path / f"{number}.txt", losses=[0.7] * (27 + number % 2) + [0.58])
    runs = [str(path) for path in sorted(tmp_path.iterdir())]
    assert mlperf.main(["--ruleset", "6.1.0", "--json", *runs]) == 0
    report = json.loads(capsys.readouterr().out)
    (check,) = report["convergence"]
    assert check["outcome"] == "passed"
    assert "RCP test PASSED" in " ".join(check["lines"])


def test_runs_that_converge_too_fast_fail(tmp_path: Path) -> None:
    for number in range(10):
        write_run(tmp_path / f"{number}.txt", losses=[0.7, 0.58])
    report = check_runs(sorted(tmp_path.iterdir()), ["6.1.0"])
    assert report.convergence[0].outcome == "failed"
    assert report.outcome == "failed"


def test_fewer_runs_say_where_they_stand(tmp_path: Path) -> None:
    for number in range(3):
        write_run(tmp_path / f"{number}.txt", losses=[0.7, 0.58])
    report = check_runs(sorted(tmp_path.iterdir()), ["6.1.0"])
    assert report.convergence[0].outcome == "not checked"
    assert "so far:" in " ".join(report.convergence[0].lines)
    assert report.outcome == "passed"


def test_the_last_attempt_is_checked_and_earlier_ones_are_named(log: Path) -> None:
    write_run(log.parents[1] / "attempt-10" / log.name)
    write_run(log.parents[1] / "attempt-2" / log.name)
    (report,) = check_runs([log.parents[2]], ["6.1.0"]).logs
    assert report.path.endswith("attempt-10/result_0.txt")
    assert [name.split("/")[1] for name in report.older] == ["attempt-1", "attempt-2"]


@pytest.mark.parametrize(
    ("name", "message"),
    [("nowhere", "neither a run directory nor a log"), ("empty", "mlperf.enable: true")],
)
def test_without_a_log_nothing_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture, name: str, message: str
) -> None:
    (tmp_path / "empty").mkdir()
    assert mlperf.main([str(tmp_path / name)]) == 4
    assert message in capsys.readouterr().err
