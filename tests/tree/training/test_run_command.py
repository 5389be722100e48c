# SPDX-License-Identifier: Apache-2.0
"""`./mxtree run` with the real trainer: launcher, torchrun, ranks, run directory, reports.

What is installed from the tree is what runs: changes of the overlay count once they are built.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import origin
from training_runs import events

from mxflux.checkpoint.verify import verify

ROOT = Path(__file__).parents[3]
RECIPE = f"""\
base: {ROOT}/recipes/cpu/flux_tiny_mxfp4.yaml
model: {{fused_ln_modulate: auto}}
schedule: {{train_iters: 4}}
optimizer: {{lr_warmup_iters: 0}}
evaluation: {{interval: 2}}
"""
"""The shipped one, for four steps."""
ONE_RANK = ("launch.nproc_per_node=1",)
DIGEST = """
import importlib.metadata, json
note = importlib.metadata.distribution("mxflux").read_text("mxtree.json")
print(json.loads(note)["digest"] if note else "")
"""


def digest_in(python: Path) -> str:
    """Digest of the tree that is installed for an interpreter."""
    if not python.exists():
        return ""
    command = [str(python), "-I", "-c", DIGEST]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


@pytest.fixture(scope="module")
def code() -> list[str]:
    """Options that name the tree under test and an interpreter that has it installed."""
    tree = origin.tree()
    if tree is None or not (tree / "tree.json").is_file():
        pytest.skip("MXTREE_TREE names no tree that `mxtree build` made")
    wanted = json.loads((tree / "tree.json").read_text("utf-8"))["digest"]
    beside = tree.with_name(f"{tree.name}.venv") / "bin" / "python"
    for python in (Path(sys.executable), beside):
        if digest_in(python) == wanted:
            return ["--tree", str(tree), "--python", str(python)]
    pytest.skip(f"neither {sys.executable} nor {beside} has the tree {wanted[:12]} installed")


def mxtree(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command as it is typed, with nothing of the tests on its path."""
    variables = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "PYTHONSAFEPATH"}}
    command = [str(ROOT / "mxtree"), *map(str, arguments)]
    return subprocess.run(
        command, env=variables, capture_output=True, text=True, check=False, timeout=240
    )


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipes") / "tiny_mxfp4.yaml"
    path.write_text(RECIPE, "utf-8")
    return path


@pytest.fixture(scope="module")
def run(recipe: Path, code: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after two of its four steps, and then went on to the end."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    first = mxtree("run", recipe, "--max-steps", "2", "--run-dir", folder, *code)
    assert first.returncode == 0, first.stderr
    assert "mxtree: stopped after step 2: schedule.exit_interval=2" in first.stderr
    assert "step 2/4 | loss " in first.stdout
    again = mxtree("run", recipe, "--run-dir", folder, *code)
    assert again.returncode == 0, again.stderr
    assert "goes on after step 2" in again.stderr
    assert again.stdout.endswith("finished after step 4\n")
    return folder


def loads(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def test_what_a_run_leaves_behind(run: Path, code: list[str]) -> None:
    record = loads(run / "run.json")
    tree = loads(Path(code[1]) / "tree.json")
    assert record["tree_digest"] == tree["digest"]
    assert record["recipe_sha256"] == hashlib.sha256((run / "recipe.yaml").read_bytes()).hexdigest()
    assert (record["status"], record["world_size"]) == ("finished", 2)
    ended = [(a["status"], a["first_step"], a["last_step"]) for a in record["attempts"]]
    assert ended == [("stopped", 0, 2), ("finished", 2, 4)]
    assert record["versions"]["mxflux"].endswith(tree["digest"][:12])

    rows = {row["key"]: row for row in loads(run / "effective.json")}
    assert rows["precision.fp4"]["status"] == "ok"
    assert rows["precision.fp4"]["live"] == "e2m1"
    assert not [key for key, row in rows.items() if row["status"] == "overridden"]

    census = loads(run / "census.json")
    assert len(census["expected"]) == 12
    for name in census["expected"]:
        ran = {(gemm["format"], gemm["backend"]) for gemm in census[name].values()}
        assert ran == {("e2m1", "emulated")}

    gates = loads(run / "fusions.json")
    assert {gate["key"] for gate in gates} == {"fused_ln_modulate"}
    assert all(gate["engaged"] == 0 and sum(gate["declined"].values()) > 0 for gate in gates)

    assert [event["step"] for event in events(run, "train")] == [1, 2, 3, 4]
    assert [event["count"] for event in events(run, "evaluation")] == [224, 224]
    assert [event["step"] for event in events(run, "checkpoint")] == [2, 4]
    assert (run / "latest").resolve().name == "iter_0000004"
    assert verify((run / "latest").resolve()).tensors
    assert (run / "logs" / "attempt-2" / "rank-1.log").is_file()


def test_a_finished_run_is_reported_and_not_run_again(
    run: Path, recipe: Path, code: list[str], tmp_path: Path
) -> None:
    before = (run / "metrics.jsonl").read_bytes()
    again = mxtree("run", recipe, "--run-dir", run, *code)
    assert (again.returncode, (run / "metrics.jsonl").read_bytes()) == (0, before)
    assert "is finished" in again.stderr

    shown = mxtree("report", "run", run, "-o", tmp_path / "report.html")
    assert shown.returncode == 0, shown.stderr
    text = (tmp_path / "report.md").read_text("utf-8").replace("\\", "")
    digest = loads(run / "run.json")["tree_digest"]
    for part in ("finished; step 4 of 4", "e2m1", "fused_ln_modulate", digest):
        assert part in text

    same = shutil.copytree(run, tmp_path / "same", symlinks=True)
    equal = mxtree("report", "compare", run, same, "--assert-equal", "-o", tmp_path / "c.html")
    assert (equal.returncode, (tmp_path / "c.html").is_file()) == (0, True), equal.stderr


@pytest.mark.parametrize(
    ("overrides", "status", "message"),
    [
        # Megatron would switch it off in silence.
        (
            ("model.apply_rope_fusion=true", "model.position_embedding_type=none"),
            2,
            "model.apply_rope_fusion=true with model.",
        ),
        # Not the launcher sees that, but the ranks.
        (
            ("mlperf.enable=true", "mlperf.submission_org=o", "mlperf.submission_platform=p",
             "mlperf.train_samples=1573", *ONE_RANK),
            2,
            "rank 0: error: mlperf: the rules of 6.1.0 would refuse the log of this run",
        ),
        # Trained to pieces: the first update is finite, what comes out of it is not.
        (
            ("optimizer.lr=1e30", "checkpoint.save_interval=1", *ONE_RANK),
            3,
            "rank 0: error: step 2: the loss is not finite on 1 of 1 ranks",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_done_has_one_error_and_a_status(
    recipe: Path, code: list[str], tmp_path: Path, overrides: tuple[str, ...], status: int,
    message: str,
) -> None:  # fmt: skip
    folder = tmp_path / "run"
    result = mxtree("run", recipe, *overrides, "--run-dir", folder, *code)
    assert result.returncode == status, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    if status == 3:
        assert "next: the same command goes on after step 1" in result.stderr
        assert (folder / "latest").resolve().name == "iter_0000001"
