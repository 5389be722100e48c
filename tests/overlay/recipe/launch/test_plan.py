# SPDX-License-Identifier: Apache-2.0
"""Plans: command lines, sbatch scripts, and that nothing of it needs torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mxflux
from mxflux.recipe.launch import job, record, slurm
from mxflux.recipe.launch.errors import LaunchError
from mxflux.recipe.launch.plan import LaunchPlan, make_plan

if TYPE_CHECKING:
    from conftest import MakeRecipe

RUN = Path("/runs/a run")
LOGS = RUN / "logs" / "attempt-2"


def plan(recipe: MakeRecipe, device: str = "cpu", **changes: object) -> LaunchPlan:
    return make_plan(recipe(device, **changes), RUN, "/env/python", {})


def test_one_node(recipe: MakeRecipe) -> None:
    assert plan(recipe).argv(LOGS) == [
        *("/env/python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
        *("--max-restarts=0", "-m", "mxflux.recipe.launch.rank", "/runs/a run/logs/attempt-2"),
        *("mxflux.training.main", "--run-dir=/runs/a run"),
    ]


def test_a_named_port(recipe: MakeRecipe) -> None:
    argv = plan(recipe, launch__master_port=29501).argv(LOGS)
    assert "--standalone" not in argv
    assert {"--nnodes=1", "--master-addr=127.0.0.1", "--master-port=29501"} <= set(argv)


def test_an_imagined_world(recipe: MakeRecipe) -> None:
    found = make_plan(recipe(), RUN, "python", {}, fake_world=4)
    argv = found.argv(LOGS)
    assert "--nproc-per-node=1" in argv
    assert argv[-1] == "--fake-world=4"
    assert (found.world_size, found.batch.accumulation) == (4, 1)


def many(recipe: MakeRecipe) -> LaunchPlan:
    launch = {
        "nproc_per_node": 8,
        "nodes": 2,
        "slurm": {"partition": "gpu", "time_limit_minutes": 90, "extra": ["--constraint=mi355x"]},
    }
    return plan(recipe, "mi355x", launch=launch, schedule__global_batch_size=1024)


def test_many_nodes_meet_on_the_first(recipe: MakeRecipe) -> None:
    argv = many(recipe).argv(LOGS, head="node1", job="77")
    assert argv[:3] == ["srun", "--nodes=2", "--ntasks-per-node=1"]
    assert argv[argv.index("-m") + 1] == "mxflux.recipe.launch.node"
    assert {"--nnodes=2", "--rdzv-endpoint=node1:29500", "--rdzv-id=77-attempt-2"} <= set(argv)


def test_the_script_is_a_script_and_explains_each_line(recipe: MakeRecipe, tmp_path: Path) -> None:
    text = slurm.script(many(recipe))
    path = tmp_path / "run.sbatch"
    path.write_text(text)
    subprocess.run(["bash", "-n", path], check=True)
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith(("#SBATCH", "export", "unset", "exec", "set ")):
            before = lines[number - 1]
            assert before.startswith("# "), f"no reason above {line}"
    assert "#SBATCH --partition=gpu" in lines
    assert "#SBATCH --time=90" in lines
    assert "#SBATCH --signal=B:TERM@600" in lines
    assert "#SBATCH --output='/runs/a run/logs'/slurm-%j.log" in lines
    assert "#SBATCH --constraint=mi355x" in lines
    assert "export MXFLUX_GEMM_BACKEND=aiter" in lines
    assert lines[-1] == "exec /env/python -m mxflux.recipe.launch.job '/runs/a run'"


@pytest.mark.parametrize(("minutes", "seconds"), [(None, 600), (1, 30), (10, 300), (20, 600)])
def test_the_notice_is_shorter_than_the_job(
    recipe: MakeRecipe, minutes: int | None, seconds: int
) -> None:
    loaded = recipe(launch__slurm={"time_limit_minutes": minutes})
    text = slurm.script(make_plan(loaded, Path("/runs/50%"), "python", {}))
    assert f"#SBATCH --signal=B:TERM@{seconds}\n" in text
    assert "#SBATCH --output=/runs/50%%/logs/slurm-%j.log\n" in text


def test_the_first_node_is_slurms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "scontrol"
    program.write_text('#!/bin/sh\n[ "$3" = "n[1-2]" ] && printf "n1\\nn2\\n"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    assert job.first_node(os.environ) == "n1"
    monkeypatch.delenv("SLURM_JOB_NODELIST")
    assert job.first_node(os.environ) == "127.0.0.1"


def test_a_tree_that_changed_while_the_job_waited(tmp_path: Path) -> None:
    job._check_tree(_recorded(tmp_path, "a" * 64), "a" * 64)
    with pytest.raises(LaunchError, match="tree aaaaaaaaaaaa, and bbbbbbbbbbbb is installed"):
        job._check_tree(tmp_path, "b" * 64)


def _recorded(run: Path, digest: str) -> Path:
    record.write(run, {"format": 1, "attempts": [], "tree_digest": digest})
    return run


def test_the_machine_form(recipe: MakeRecipe) -> None:
    found = plan(recipe, "mi355x").to_json()
    assert found["paths"]["logs"] == "/runs/a run/logs/attempt-1/rank-N.log"
    assert found["environment"]["set"]["MXFLUX_GEMM_BACKEND"] == "aiter"
    assert found["batch"]["accumulation"] == 1
    assert found["problems"] == []


def test_nothing_here_imports_torch() -> None:
    folder = Path(mxflux.__file__).parent / "recipe" / "launch"
    names = [f"mxflux.recipe.launch.{path.stem}" for path in folder.glob("*.py")]
    code = f"import sys\nfor n in {names!r}: __import__(n)\nprint('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(folder.parents[2])}
    shown = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert re.sub(r"\s", "", shown.stdout) == "False"
