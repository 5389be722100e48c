# SPDX-License-Identifier: Apache-2.0
"""Run directories: whole or absent, and only for the recipe that made them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mxflux.recipe import load
from mxflux.recipe.launch import record, rundir
from mxflux.recipe.launch.errors import LaunchError

if TYPE_CHECKING:
    from conftest import MakeRecipe

TREE, OTHER_TREE = "a" * 64, "b" * 64


@pytest.fixture
def run(tmp_path: Path, recipe: MakeRecipe) -> Path:
    """Return the directory of a run that has stopped after step 4."""
    folder = tmp_path / "runs" / "cpu_run"
    rundir.create(folder, recipe(), {"tree_digest": TREE})
    record.begin_attempt(folder, ["torchrun"], tree_digest=TREE)
    record.end_attempt(folder, status="stopped", exit_code=0)
    tracker = folder / "checkpoints" / "latest_checkpointed_iteration.txt"
    tracker.parent.mkdir()
    tracker.write_text("4\n")
    return folder


def test_a_new_run(tmp_path: Path, recipe: MakeRecipe) -> None:
    loaded, folder = recipe(), tmp_path / "runs" / "new"
    assert rundir.examine(folder, loaded, TREE, resume=False) == rundir.Start("new")
    rundir.create(folder, loaded, {"tree_digest": TREE, "argv": ["run"]})
    assert sorted(path.name for path in folder.parent.iterdir()) == ["new"]
    found = json.loads((folder / "run.json").read_text())
    assert (found["format"], found["name"], found["status"]) == (1, "cpu_run", "new")
    assert found["recipe_sha256"] == rundir.recipe_sha256(loaded)
    assert (found["attempts"], found["argv"], found["tree_digest"]) == ([], ["run"], TREE)
    assert found["cwd"] == str(Path.cwd()), "relative paths in the recipe are from here"
    assert load(folder / "recipe.yaml").recipe == loaded.recipe


def test_a_directory_that_cannot_be_made_leaves_nothing(tmp_path: Path, recipe: MakeRecipe) -> None:
    (tmp_path / "runs" / "new" / "something").mkdir(parents=True)
    with pytest.raises(LaunchError, match="cannot be made") as caught:
        rundir.create(tmp_path / "runs" / "new", recipe(), {})
    assert caught.value.code == 3
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["new"]


def test_the_same_recipe_goes_on(run: Path, recipe: MakeRecipe) -> None:
    assert rundir.examine(run, recipe(), TREE, resume=False) == rundir.Start("resume", 4)


def test_another_recipe_is_refused_by_its_keys(run: Path, recipe: MakeRecipe) -> None:
    other = recipe(schedule__seed=7, optimizer__lr=2e-3)
    with pytest.raises(LaunchError, match="is a run of another recipe") as caught:
        rundir.examine(run, other, TREE, resume=True)
    assert caught.value.details == ("optimizer.lr: 0.001 -> 0.002", "schedule.seed: 1234 -> 7")
    assert "--run-dir" in str(caught.value.hint)


def test_what_changes_no_number_may_change(run: Path, recipe: MakeRecipe) -> None:
    changed = recipe(schedule__exit_interval=8, logging={"interval": 5})
    start = rundir.examine(run, changed, TREE, resume=False)
    assert start.notes == (
        "changed since the last attempt: logging.interval: 1 -> 5",
        "changed since the last attempt: schedule.exit_interval: null -> 8",
    )
    rundir.adopt(run, changed)
    assert load(run / "recipe.yaml").recipe == changed.recipe
    assert load(run / "recipe.until-attempt-1.yaml").recipe == recipe().recipe
    assert record.read(run)["recipe_sha256"] == rundir.recipe_sha256(changed)


def test_a_key_that_is_newer_than_the_run_counts_by_its_default(
    run: Path, recipe: MakeRecipe
) -> None:
    path = run / "recipe.yaml"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("  manual_gc_interval")))
    assert rundir.examine(run, recipe(), TREE, resume=False) == rundir.Start("resume", 4)
    path.write_text(path.read_text().replace("  seed: 1234", "  sead: 1234"))
    with pytest.raises(LaunchError, match="another recipe") as caught:
        rundir.examine(run, recipe(), TREE, resume=False)
    assert "schedule.seed: (not there) -> 1234" in caught.value.details


def test_an_unchanged_recipe_keeps_its_file(run: Path, recipe: MakeRecipe) -> None:
    before = (run / "recipe.yaml").read_bytes()
    again = load(run / "recipe.yaml", ["schedule.seed=1234"])
    assert again.dump_resolved() != before, "the origin of the seed is another one"
    rundir.adopt(run, again)
    assert (run / "recipe.yaml").read_bytes() == before
    assert not list(run.glob("recipe.until-*"))


def test_another_tree_goes_on_only_when_asked(run: Path, recipe: MakeRecipe) -> None:
    with pytest.raises(LaunchError, match="trained with another tree: tree aaaaaaaaaaaa -> bbb"):
        rundir.examine(run, recipe(), OTHER_TREE, resume=False)
    start = rundir.examine(run, recipe(), OTHER_TREE, resume=True)
    assert start.notes == ("goes on with another tree aaaaaaaaaaaa -> bbbbbbbbbbbb",)
    record.begin_attempt(run, ["torchrun"], tree_digest=OTHER_TREE)
    assert rundir.examine(run, recipe(), OTHER_TREE, resume=False).notes == ()


def test_a_finished_run(run: Path, recipe: MakeRecipe) -> None:
    record.end_attempt(run, status="finished", exit_code=0)
    assert rundir.examine(run, recipe(), TREE, resume=False) == rundir.Start("finished", 4)


def test_resume_needs_a_run(tmp_path: Path, recipe: MakeRecipe) -> None:
    with pytest.raises(LaunchError, match="there is no run in"):
        rundir.examine(tmp_path / "nothing", recipe(), TREE, resume=True)


def test_what_is_no_run_directory(tmp_path: Path, run: Path, recipe: MakeRecipe) -> None:
    with pytest.raises(LaunchError, match=r"has no run\.json: it is not a run directory"):
        rundir.examine(tmp_path, recipe(), TREE, resume=False)
    (run / "run.json").write_text('{"format": 9}')
    with pytest.raises(LaunchError, match="not of format 1"):
        rundir.examine(run, recipe(), TREE, resume=False)
    (run / "run.json").write_text("{")
    with pytest.raises(LaunchError, match="is damaged"):
        record.read(run)


def test_fresh_moves_aside(run: Path) -> None:
    assert rundir.move_aside(run).name == "cpu_run.old-1"
    run.mkdir()
    assert rundir.move_aside(run).name == "cpu_run.old-2"
