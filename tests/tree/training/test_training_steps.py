# SPDX-License-Identifier: Apache-2.0
"""Short runs: warm-up without a trace, precision by census, compile, NaN, other rank counts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from training_runs import SHORT, Server, copy_up_to, events, make_run, trace

if TYPE_CHECKING:
    from pathlib import Path

MXFP4 = (
    "precision.fp4=e2m1", "precision.fp4_recipe=mxfp4", "precision.gemm_backend=emulated",
    "precision.mx_hadamard=true", "precision.mx_stochastic_rounding=true",
)  # fmt: skip

COMPILED = ("compile.enable=true", "compile.backend=eager")
DYNAMO = {"TORCHDYNAMO_DISABLE": "0"}


@pytest.fixture(scope="session")
def short(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    """What three plain steps are."""
    return trace(server.finish(make_run(tmp_path_factory.mktemp("short") / "run", recipe=SHORT)))


@pytest.mark.parametrize(
    "overrides",
    [
        ["schedule.warmup_train_steps=2", "parallel.defer_grad_buffer_zero=true"],
        ["parallel.overlap_param_gather=false", "schedule.manual_gc=true",
         "schedule.manual_gc_interval=2", "probes.batch_fetch_timing=true",
         "probes.train_profile=true", "probes.profile_step_start=2", "probes.profile_step_end=3"],
    ],
    ids=["warmed", "timed"],
)  # fmt: skip
def test_settings_that_must_not_change_a_number(
    server: Server, short: dict[Any, Any], tmp_path: Path, overrides: list[str]
) -> None:
    run = server.finish(make_run(tmp_path / "run", *overrides, recipe=SHORT))
    assert trace(run) == short
    warmed = "schedule.warmup_train_steps=2" in overrides
    (proven,) = events(run, "first_step")
    assert (proven["step"], proven["attention"] != {}) == (0 if warmed else 1, True)
    probed = "probes.train_profile=true" in overrides
    assert ("fetch_seconds" in events(run, "train")[0]) == probed
    assert (run / "profile" / "train-rank-0.json").exists() == probed


def test_warm_up_leaves_every_state_bit_equal(server: Server, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", recipe=SHORT)
    server.finish(run, call="training_ranks:state_around_warm_up")
    found = json.loads((run / "answer.json").read_text("utf-8"))
    assert found["changed by a step"]
    assert found["changed by the warm-up"] == []
    assert found["adam states"] == 0


def test_resume_skips_the_warm_up(server: Server, whole: Path, tmp_path: Path) -> None:
    run = copy_up_to(whole, tmp_path / "run", 8)
    recipe = (run / "recipe.yaml").read_text("utf-8")
    changed = recipe.replace("warmup_train_steps: 0", "warmup_train_steps: 2")
    assert changed != recipe
    (run / "recipe.yaml").write_text(changed, "utf-8")
    answer = server.run(run)
    assert answer["codes"] == [0, 0]
    assert "resumed: no warm-up" in answer["outputs"][0]
    again = trace(run)
    assert again == {key: value for key, value in trace(whole).items() if key in again}


def test_mxfp4_runs_in_every_linear_and_resumes_bit_identically(
    server: Server, tmp_path: Path
) -> None:
    """Also its stochastic rounding, whose state is in no checkpoint."""
    whole = server.finish(
        make_run(tmp_path / "whole", *MXFP4, "checkpoint.save_interval=2", recipe=SHORT)
    )
    _check_mxfp4(json.loads((whole / "census.json").read_text("utf-8")))
    again = trace(server.finish(copy_up_to(whole, tmp_path / "run", 2)))
    assert again == {3: trace(whole)[3]}


def _check_mxfp4(census: dict[str, Any]) -> None:
    expected = census.pop("expected")
    assert len(expected) == 12
    assert set(census) == set(expected)
    for directions in census.values():
        assert set(directions) == {"fprop", "dgrad", "wgrad"}
        for gemm in directions.values():
            assert (gemm["format"], gemm["backend"], gemm["gemms"]) == ("e2m1", "emulated", 2)
            assert gemm["quantizations"] == 4


def test_a_key_that_is_not_in_effect_stops_the_run(server: Server, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "model.layernorm_epsilon=1e-6", recipe=SHORT)
    answer = server.run(run, call="training_ranks:another_epsilon")
    assert answer["codes"] == [1, 1], answer["outputs"]
    for output in answer["outputs"]:
        assert "model.layernorm_epsilon: requested 1e-06 (command line)" in output
    rows = json.loads((run / "effective.json").read_text("utf-8"))
    assert [row["key"] for row in rows if row["status"] == "overridden"] == [
        "model.layernorm_epsilon"
    ]


def test_a_linear_that_did_not_run_in_mx_stops_the_run(server: Server, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", *MXFP4, recipe=SHORT)
    answer = server.run(run, world=1, call="training_ranks:one_linear_in_bf16")
    assert answer["codes"] == [1], answer["outputs"]
    assert "did not run as `precision` says" in answer["outputs"][0]
    assert (
        "transformer.layers.1.mlp.linear_fc1: fprop ran nothing, not e2m1" in answer["outputs"][0]
    )
    assert "linear_fc2" not in answer["outputs"][0]
    assert events(run, "train") == []


@pytest.mark.parametrize("background", ["false", "true"])
def test_nan_loss_names_step_and_rank_and_saves_nothing(
    server: Server, tmp_path: Path, background: str
) -> None:
    """What was begun before is published all the same."""
    run = make_run(
        tmp_path / "run", "checkpoint.save_interval=1", f"checkpoint.async_save={background}",
        recipe=SHORT,
    )  # fmt: skip
    answer = server.run(run, call="training_ranks:nan_on_rank_1")
    assert answer["codes"] == [3, 3]
    for output in answer["outputs"]:
        assert "step 2: the loss is not finite on 1 of 2 ranks (rank 1: nan)" in output
        assert "Traceback" not in output
    assert sorted(p.name for p in (run / "checkpoints").glob("iter_*")) == ["iter_0000001"]


def test_nan_in_validation_loses_no_save_that_is_being_written(
    server: Server, tmp_path: Path
) -> None:
    run = make_run(
        tmp_path / "run", "checkpoint.save_interval=1", "checkpoint.async_save=true",
        "evaluation.interval=2", "evaluation.iters=1", recipe=SHORT,
    )  # fmt: skip
    answer = server.run(run, call="training_ranks:nan_in_validation")
    assert answer["codes"] == [3, 3]
    for output in answer["outputs"]:
        assert "error: validation loss after step 2 is nan (timesteps 0 of 8)" in output
        assert "Traceback" not in output
    assert [event["step"] for event in events(run, "checkpoint")] == [1]
    assert (run / "latest").resolve().name == "iter_0000001"


def test_validation_data_that_end_early_are_found_at_every_start(
    server: Server, tmp_path: Path
) -> None:
    """There are 224 pictures. A step whose evaluation failed is not one to go on after."""
    run = make_run(
        tmp_path / "run", "checkpoint.save_final=true", "evaluation.interval=2",
        "evaluation.samples=256", recipe=SHORT,
    )  # fmt: skip
    for _ in range(2):
        answer = server.run(run)
        assert answer["codes"] == [3, 3]
        for output in answer["outputs"]:
            assert "error: evaluation after step 2 counted 224 samples instead of 256 (" in output
            assert "Traceback" not in output
    assert events(run, "checkpoint") == []


def test_two_ranks_reshard_to_one_with_the_same_loss(server: Server, tmp_path: Path) -> None:
    """One rank plays both: the same samples and noise, the mean of both losses."""
    whole = server.finish(
        make_run(tmp_path / "whole", "schedule.per_step_rng_reseed=true",
                 "checkpoint.save_interval=2", recipe=SHORT)
    )  # fmt: skip
    answer = server.run(whole, world=1, call="training_ranks:next_loss_of_two_ranks")
    assert answer["codes"] == [0], answer["outputs"]
    loss = json.loads((whole / "answer.json").read_text("utf-8"))
    assert loss == trace(whole)[3][0]


def test_one_rank_goes_on_from_a_run_on_two(server: Server, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "schedule.per_step_rng_reseed=true",
                   "checkpoint.save_final=true", recipe=SHORT)  # fmt: skip
    server.finish(run)
    recipe = (run / "recipe.yaml").read_text("utf-8")
    (run / "recipe.yaml").write_text(recipe.replace("train_iters: 3", "train_iters: 4"), "utf-8")
    answer = server.run(run, world=1)
    assert answer["codes"] == [0], answer["outputs"]
    assert [e["step"] for e in events(run, "train")] == [1, 2, 3, 4]
    assert events(run, "train")[-1]["samples"] == 128


def test_a_rank_of_a_world_that_is_not_there(server: Server, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "schedule.global_batch_size=64", recipe=SHORT)
    answer = server.run(run, world=1, call="training_ranks:fake_world_of_8")
    assert answer["codes"] == [0], answer["outputs"]
    assert "rank 0 of 8: 1 micro-batch(es), one step" in answer["outputs"][0]
    assert sorted(path.name for path in run.iterdir()) == ["rank-0.log", "recipe.yaml"]


def test_blocks_compiled_one_by_one_equal_eager_ones(
    server: Server, short: dict[Any, Any], tmp_path: Path
) -> None:
    """With the compiler that runs the traced graph as it is, parameters gathered in between."""
    run = make_run(tmp_path / "run", *COMPILED, recipe=SHORT)
    server.finish(run, environment=DYNAMO)
    assert trace(run) == short


def test_longer_graphs_equal_eager_blocks(server: Server, tmp_path: Path) -> None:
    """On one rank: the whole model, and both stacks."""
    runs = {
        strategy: make_run(
            tmp_path / strategy, *COMPILED, f"compile.strategy={strategy}",
            "parallel.overlap_param_gather=false", recipe=SHORT,
        )
        for strategy in ("whole_model", "stack")
    }  # fmt: skip
    eager = server.finish(make_run(tmp_path / "eager", recipe=SHORT), world=1)
    for run in runs.values():
        server.finish(run, world=1, environment=DYNAMO)
        assert trace(run) == trace(eager)


def test_census_of_compiled_linears_costs_no_second_compilation(
    server: Server, tmp_path: Path
) -> None:
    run = make_run(
        tmp_path / "run", *MXFP4, *COMPILED, "parallel.overlap_param_gather=false", recipe=SHORT
    )
    call = "training_ranks:graphs_of_mxfp4"
    answer = server.run(run, world=1, call=call, environment=DYNAMO)
    assert answer["codes"] == [0], answer["outputs"]
    after_one, after_two, after_three = json.loads((run / "answer.json").read_text("utf-8"))
    assert after_one > 0
    assert after_three == after_two == after_one


def test_compile_that_compiles_nothing_stops_the_run(server: Server, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "compile.enable=true", recipe=SHORT)
    answer = server.run(run, world=1, call="training_ranks:without_dynamo")
    assert answer["codes"] == [1], answer["outputs"]
    assert "torch.compile compiled nothing" in answer["outputs"][0]
