# SPDX-License-Identifier: Apache-2.0
"""`mxtree run` as it is typed, with the real recipes and overlay, and no torch anywhere.

Ranks that run are the business of tests/overlay/recipe/launch and tests/tree; here torchrun is
missing in the environment of the ranks, and the launch has to end well all the same.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import socket
import string
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "environment"))

from environment_trees import make_tree

from mxtree.environment.doctor import gpu
from mxtree.environment.install import InstallRequest, install
from mxtree.environment.packages import Policy
from mxtree.errors import FatalError
from mxtree.launch import machine
from mxtree.launch.request import RunRequest

ROOT = Path(__file__).parents[2]
MI355X = "mi355x/flux_12b_schnell_mxfp4_te"
TINY = "cpu/flux_tiny"


def mxtree(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    owned = ("NVTE_", "AITER_", "HIP_", "HSA_", "MXFLUX_", "NCCL_", "MXTREE_")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(owned)}
    environment = inherited | {"MXTREE_PROJECT": str(ROOT), "PRIMUS_DIFFUSION_DATA_PATH": "/data"}
    return subprocess.run(
        [sys.executable, "-m", "mxtree", "run", *map(str, arguments)],
        env=environment | {"PYTHONPATH": str(ROOT / "tools")} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def dry(tmp_path: Path) -> list[str]:
    """Return the options of a dry run without a tree."""
    return ["--dry-run", "--tree", str(tmp_path / "none"), "--run-dir", str(tmp_path / "run")]


def test_a_dry_run_shows_everything_and_starts_nothing(dry: list[str], tmp_path: Path) -> None:
    result = mxtree(MI355X, "data.path=/data", "--nproc", "8", *dry)
    assert result.returncode == 0, result.stderr + result.stdout
    for part in (
        "512 samples a step = 64 (micro batch) x 8 (data-parallel ranks) x 1 (accumulation)",
        "GiB a rank (",
        "-m torch.distributed.run --standalone --nproc-per-node=8",
        "set      MXFLUX_GEMM_BACKEND=aiter: precision.gemm_backend",
        f"recipe       {tmp_path}/run/recipe.yaml",
        f"nothing was started: a new run in {tmp_path}/run",
    ):
        assert part in result.stdout
    assert not (tmp_path / "run").exists()


def test_a_dry_run_for_machines(dry: list[str]) -> None:
    result = mxtree(MI355X, "data.path=/data", "--json", *dry, NVTE_FUSED_ATTN="0")
    found = json.loads(result.stdout)
    assert (result.returncode, found["schema_version"], found["world_size"]) == (0, 1, 8)
    assert found["environment"]["replaced"] == {"NVTE_FUSED_ATTN": "0"}
    assert found["memory"]["total"] > found["memory"]["parameters"] > 2e10
    assert found["start"] == {"kind": "new", "step": None}


def test_an_inherited_value_against_the_recipe(dry: list[str]) -> None:
    result = mxtree(MI355X, "data.path=/data", *dry, MXFLUX_GEMM_BACKEND="triton")
    assert result.returncode == 2
    assert "error: MXFLUX_GEMM_BACKEND=triton is exported here" in result.stdout


def test_a_faulty_recipe(dry: list[str]) -> None:
    result = mxtree(TINY, "schedule.sead=1", "optimizer.lr=fast", *dry)
    assert result.returncode == 2
    assert "the recipe cannot run: 2 problems" in result.stderr
    assert "seed" in result.stderr, "the nearest name is shown"


def test_a_script_for_many_nodes(dry: list[str]) -> None:
    batch = "schedule.global_batch_size=2048"
    result = mxtree(MI355X, "data.path=/data", batch, "--nodes", "4", "--slurm", *dry)
    assert result.returncode == 0, result.stderr + result.stdout
    script = result.stdout.partition("--- run.sbatch\n")[2]
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert "#SBATCH --nodes=4" in script
    assert "srun --nodes=4" in result.stdout


def documented() -> list[str]:
    """Return every `mxtree run` of the how-tos, shell variables replaced."""
    found = []
    for name in ("run", "mi355x"):
        text = (ROOT / "docs" / "how-to" / f"{name}.md").read_text("utf-8")
        variables = dict(re.findall(r'^(\w+)="(.*)"$', text, re.MULTILINE)) | {"PY": ""}
        for line in re.findall(r"^\./mxtree run (.*?)(?: +#.*)?$", text, re.MULTILINE):
            plain = string.Template(line.replace("$(", "$$(")).substitute(variables)
            found.append(re.sub(r"--(python \$\(.*?\)|submit|fresh)", "", plain))
    return sorted(set(found))


def test_there_are_documented_commands() -> None:
    assert len(documented()) >= 8


@pytest.mark.parametrize("line", documented())
def test_what_the_documents_say_would_run(dry: list[str], line: str) -> None:
    result = mxtree(*shlex.split(line), *dry, FLUX_DATA_PATH="/data/flux")
    assert result.returncode == 0, result.stderr + result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resume": True, "fresh": True}, "--resume goes on, --fresh starts anew"),
        ({"submit": True}, "--submit sends what --slurm writes"),
        ({"submit": True, "slurm": True, "dry_run": True}, "--submit starts something"),
        ({"fake_world": 8, "slurm": True}, "--fake-world is one process"),
        ({"as_json": True}, "--json shows a plan"),
        ({"nodes": 2}, "--nodes above 1 needs Slurm"),
    ],
)
def test_options_that_contradict(options: dict[str, Any], message: str) -> None:
    with pytest.raises(FatalError, match=message):
        RunRequest(TINY, **options).check()


def test_an_option_and_an_override_of_one_key() -> None:
    request = RunRequest(TINY, ("launch.nproc_per_node=4",), nproc=2)
    with pytest.raises(FatalError, match="given twice"):
        request.all_overrides()
    assert RunRequest(TINY, ("a.b=1",), max_steps=5).all_overrides() == [
        "a.b=1",
        "schedule.exit_interval=5",
        "checkpoint.save_final=true",
    ]
    with pytest.raises(FatalError, match=r"checkpoint\.save_final is given twice"):
        RunRequest(TINY, ("checkpoint.save_final=false",), max_steps=5).all_overrides()


@pytest.mark.parametrize("recipe", ["h200/flux_535m_mxfp6", "h200/flux_535m_mlperf"])
def test_a_dry_run_says_where_max_steps_stops(dry: list[str], recipe: str) -> None:
    """Also of a recipe that saves nothing at its end: what is stopped is saved."""
    result = mxtree(recipe, "--max-steps", "20", *dry)
    assert result.returncode == 0, result.stderr + result.stdout
    assert "stop       after step 20, which is saved (schedule.exit_interval: 20)" in result.stdout
    assert "stop  " not in mxtree(recipe, "--max-steps", "999999", *dry).stdout


def test_trackers_that_are_not_installed() -> None:
    on = SimpleNamespace(tensorboard=True, wandb_project="p")
    off = SimpleNamespace(tensorboard=False, wandb_project=None)
    machine.check_extras(off, Path("p"), {})
    machine.check_extras(on, Path("p"), {"tensorboard": "2", "wandb": "0"})
    with pytest.raises(FatalError, match=r"logging\.wandb_project needs the package wandb") as one:
        machine.check_extras(on, Path("p"), {"tensorboard": "2"})
    assert str(one.value.hint).startswith("p -m pip install wandb ")
    with pytest.raises(FatalError, match=r"logging\.tensorboard needs the package tensorboard; "):
        machine.check_extras(on, Path("p"), {})


def test_gpus() -> None:
    machine.check_gpus("cpu", 8, lambda: pytest.fail("a CPU run asks for no GPU"))
    machine.check_gpus("mi355x", 2, lambda: ["gfx950", "gfx950"])
    with pytest.raises(FatalError, match="no GPU was found") as none:
        machine.check_gpus("h200", 1, list)
    assert "--dry-run" in str(none.value.hint)
    with pytest.raises(FatalError, match="there are 1 of 2 GPUs") as few:
        machine.check_gpus("h200", 8, lambda: ["sm_90", "sm_80"])
    assert few.value.hint == "--nproc 1"
    with pytest.raises(FatalError, match=r"there are 0 of 1 GPUs \(gfx942\)"):
        machine.check_gpus("mi355x", 1, lambda: ["gfx942"])


def test_gpus_of_this_machine() -> None:
    """The Python of the tests has no torch, or one that sees what the drivers see."""
    assert machine.gpus(Path(sys.executable)) == gpu.from_drivers()


def test_a_port_in_use() -> None:
    machine.check_port(None)
    with socket.socket() as server:
        server.bind(("", 0))
        server.listen()
        port = server.getsockname()[1]
        with pytest.raises(FatalError, match=rf"port {port} \(launch\.master_port\) is in use"):
            machine.check_port(port)
    machine.check_port(port)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tree with this checkout's overlay in it."""
    overlay = {
        f"overlay/{path.relative_to(ROOT / 'overlay')}": path.read_text("utf-8")
        for path in (ROOT / "overlay").rglob("*")
        if path.is_file() and "cache" not in str(path) and path.suffix != ".pyc"
    }
    return make_tree(tmp_path_factory.mktemp("trees") / "default", extra=overlay)


@pytest.fixture(scope="module")
def python(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter with the tree, and nothing else, in it."""
    folder = tmp_path_factory.mktemp("env") / "env"
    command = [sys.executable, "-m", "virtualenv", "--quiet", "--no-periodic-update", "--no-pip"]
    subprocess.run([*command, "--no-setuptools", folder], check=True)
    found = folder / "bin" / "python"
    install(InstallRequest(tree, python=found, dependencies=Policy.IGNORE))
    return found


@pytest.fixture
def options(tree: Path, python: Path, tmp_path: Path) -> list[str | Path]:
    """Return the options of a run in the environment without torch."""
    return ["--tree", tree, "--python", python, "--run-dir", tmp_path / "runs" / "tiny"]


def test_a_run_that_cannot_start_its_ranks_is_recorded_and_goes_on(
    options: list[str | Path], tmp_path: Path
) -> None:
    run = tmp_path / "runs" / "tiny"
    first = mxtree(TINY, *options, "--max-restarts", "3", NVTE_DEBUG="1")
    assert first.returncode == 3, first.stderr
    assert f"a new run in {run}" in first.stderr
    assert "environment: unset    NVTE_DEBUG (was '1')" in first.stderr
    assert "No module named" in first.stderr
    found = json.loads((run / "run.json").read_text())
    assert (found["status"], len(found["attempts"])) == ("failed", 1)
    assert found["environment_delta"]["unset"]["NVTE_DEBUG"] == "1"
    assert found["tree_modified"] is False
    assert found["attempts"][0]["tree_digest"] == found["tree_digest"]
    assert found["versions"]["mxflux"].endswith(found["tree_digest"][:12])

    again = mxtree(TINY, *options)
    assert "the same run in" in again.stderr
    assert len(json.loads((run / "run.json").read_text())["attempts"]) == 2

    other = mxtree(TINY, "schedule.seed=99", *options)
    assert other.returncode == 2
    assert "is a run of another recipe" in other.stderr
    assert "schedule.seed: " in other.stderr

    fresh = mxtree(TINY, "schedule.seed=99", "--fresh", *options)
    assert "moved the old run aside" in fresh.stderr
    assert json.loads((run.with_name("tiny.old-1") / "run.json").read_text()) != found
    assert len(json.loads((run / "run.json").read_text())["attempts"]) == 1


def test_a_run_that_is_going_on_is_not_moved_aside(
    options: list[str | Path], tmp_path: Path
) -> None:
    run = tmp_path / "runs" / "tiny"
    mxtree(TINY, "--slurm", *options)
    with (run / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = mxtree(TINY, "--fresh", *options)
    assert result.returncode == 2
    assert "is running already" in result.stderr
    assert run.exists()


def test_the_recipe_of_a_run_that_is_going_on_stays_as_it_is(
    options: list[str | Path], tmp_path: Path
) -> None:
    run = tmp_path / "runs" / "tiny"
    mxtree(TINY, "--slurm", *options)
    before = (run / "recipe.yaml").read_bytes()
    with (run / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = mxtree(TINY, "logging.interval=7", *options)
    assert result.returncode == 2
    assert "is running already" in result.stderr
    assert (run / "recipe.yaml").read_bytes() == before
    assert not list(run.glob("recipe.until-*"))


def test_a_tracker_is_asked_for_before_anything_is_made(
    options: list[str | Path], tmp_path: Path
) -> None:
    result = mxtree(TINY, "logging.tensorboard=true", *options)
    assert result.returncode == 2
    assert "logging.tensorboard needs the package tensorboard, not installed for" in result.stderr
    assert not (tmp_path / "runs" / "tiny").exists()


def test_many_nodes_of_a_recipe_need_slurm(options: list[str | Path], tmp_path: Path) -> None:
    result = mxtree(TINY, "launch.nodes=2", "launch.nproc_per_node=1", *options)
    assert result.returncode == FatalError("").code
    assert "launch.nodes=2: --nodes above 1 needs Slurm: add --slurm" in result.stderr
    assert not (tmp_path / "runs" / "tiny").exists()


def test_resume_needs_a_run(options: list[str | Path]) -> None:
    result = mxtree(TINY, "--resume", *options)
    assert result.returncode == 2
    assert "--resume: there is no run in" in result.stderr


def test_a_script_is_written_and_submitted_only_when_asked(
    options: list[str | Path], tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "sbatch"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "Submitted batch job 7: $1"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    script = tmp_path / "runs" / "tiny" / "run.sbatch"
    written = mxtree(TINY, "--slurm", *options, PATH=path)
    assert (written.returncode, written.stdout) == (0, f"{script}\n"), written.stderr
    subprocess.run(["bash", "-n", script], check=True)
    submitted = mxtree(TINY, "--slurm", "--submit", *options, PATH=path)
    assert submitted.stdout == f"Submitted batch job 7: {script}\n"


def test_a_tree_that_was_changed(options: list[str | Path], tree: Path, tmp_path: Path) -> None:
    added = tree / "overlay" / "mxflux" / "an_experiment.py"
    added.write_text("")
    try:
        refused = mxtree(TINY, *options)
        assert refused.returncode == 1
        assert "extra     overlay/mxflux/an_experiment.py" in refused.stderr
        mxtree(TINY, "--allow-modified", *options)
    finally:
        added.unlink()
    found = json.loads((tmp_path / "runs" / "tiny" / "run.json").read_text())
    assert found["tree_modified"] is True


def test_another_tree_than_the_one_that_is_installed(
    options: list[str | Path], tmp_path: Path, tree: Path
) -> None:
    other = tmp_path / "other"
    overlay = {
        f"overlay/{path.relative_to(tree / 'overlay')}": path.read_text("utf-8")
        for path in (tree / "overlay").rglob("*.py")
    }
    make_tree(other, extra={**overlay, "overlay/mxflux/more.py": "MORE = 1\n"})
    result = mxtree(TINY, *options[2:], "--tree", other)
    assert result.returncode == 2
    assert "installed, " in result.stderr
    assert f"next: ./mxtree install {other}" in result.stderr


def test_no_tree_no_run(tmp_path: Path) -> None:
    result = mxtree(TINY, "--tree", tmp_path)
    assert result.returncode == 2
    assert "there is no tree at" in result.stderr
    assert "next: ./mxtree build" in result.stderr
