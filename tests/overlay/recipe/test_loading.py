# SPDX-License-Identifier: Apache-2.0
"""load(): bases, overrides, names, origins, and files that are no recipe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mxflux.recipe import RecipeError, load

if TYPE_CHECKING:
    from conftest import Faults, Load


def test_a_recipe_has_the_name_of_its_file(load_text: Load) -> None:
    loaded = load_text()
    assert loaded.recipe.name == "r"
    assert str(loaded.origins["name"]) == "file name"


def test_origins_of_every_kind(load_text: Load, small: str) -> None:
    text = small.replace("train_iters: 100", "train_iters: ${STEPS}")
    loaded = load_text(text, ["optimizer.min_lr=2e-4"], {"STEPS": "7"})
    assert loaded.recipe.schedule.train_iters == 7
    expected = {
        "device": "r.yaml:1",
        "schedule.train_iters": "r.yaml:9 $STEPS",
        "optimizer.min_lr": "command line",
        "schedule.seed": "default",
    }
    assert {key: str(loaded.origins[key]) for key in expected} == expected


def test_a_base_is_merged_key_by_key(folder: Path, small: str) -> None:
    (folder / "sub").mkdir()
    (folder / "base.yaml").write_text(f"name: other\ndescription: other\n{small}")
    (folder / "sub" / "r.yaml").write_text("base: ../base.yaml\nschedule:\n  seed: 5\n")
    loaded = load("sub/r.yaml")
    assert (loaded.recipe.schedule.seed, loaded.recipe.schedule.train_iters) == (5, 100)
    assert (loaded.recipe.name, loaded.recipe.description) == ("r", "")
    assert str(loaded.origins["schedule.seed"]) == "sub/r.yaml:3"
    assert str(loaded.origins["schedule.train_iters"]) == "base.yaml:11"


def test_a_fault_in_a_base_has_the_place_in_the_base(folder: Path, small: str) -> None:
    (folder / "base.yaml").write_text(small.replace("cpu", "gpu"))
    (folder / "r.yaml").write_text("base: base.yaml\nlogging: {intervall: 3}\n")
    with pytest.raises(RecipeError) as caught:
        load("r.yaml")
    assert {str(problem).split(": ")[0] for problem in caught.value.problems} == {
        "r.yaml:2:11",
        "base.yaml:1:9",
    }


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        (
            {"r.yaml": "base: a.yaml\n", "a.yaml": "base: b.yaml\n", "b.yaml": "base: a.yaml\n"},
            "b.yaml:1:7: base: goes round in a circle: a.yaml -> b.yaml -> a.yaml",
        ),
        ({"r.yaml": "base: r.yaml\n"}, "r.yaml:1:7: base: goes round in a circle"),
        ({"r.yaml": "base: none.yaml\n"}, "r.yaml:1:7: base: 'none.yaml' is no file"),
        ({"r.yaml": "base: [a.yaml]\n"}, "r.yaml:1:7: base: must be the path of one recipe file"),
        ({"r.yaml": ""}, "r.yaml:1:1: no recipe: the file has no keys"),
        ({"r.yaml": "- a\n"}, "r.yaml:1:1: no recipe: the file has no keys"),
    ],
)
def test_bases_that_cannot_be(folder: Path, files: dict[str, str], fault: str) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)
    with pytest.raises(RecipeError) as caught:
        load("r.yaml")
    assert any(str(problem).startswith(fault) for problem in caught.value.problems)


def test_files_that_cannot_be_read(folder: Path) -> None:
    (folder / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    for path, fault in (
        ("none.yaml", "none.yaml: cannot be read: No such file"),
        (".", ".: cannot be read: Is a directory"),
        ("latin.yaml", "latin.yaml: not UTF-8 text"),
    ):
        with pytest.raises(RecipeError, match=fault):
            load(path)


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("optimizer.adam_eps=1e-8", 1e-8),
        ("optimizer.adam_eps=${EPS}", 2e-4),
        ("optimizer.adam_eps=${NONE:3e-4}", 3e-4),
        ("optimizer={lr: 1, adam_eps: 5e-5}", 5e-5),
    ],
)
def test_overrides_are_read_as_a_file_is(load_text: Load, override: str, value: float) -> None:
    loaded = load_text(overrides=[override], environ={"EPS": "2e-4"})
    assert loaded.recipe.optimizer.adam_eps == value


def test_the_last_override_wins_and_lists_are_replaced(load_text: Load) -> None:
    loaded = load_text(
        overrides=["schedule.seed=1", "schedule.seed=2", "model.axes_dim=[16, 8, 8]"]
    )
    assert loaded.recipe.schedule.seed == 2
    assert loaded.recipe.model.axes_dim == (16, 8, 8)


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("seed", "override 'seed': not an override (write section.key=value"),
        ("=3", "override '=3': not an override"),
        ("schedule.seed=", "override 'schedule.seed=':1:15: schedule.seed has no value"),
        ("schedule.sed=3", "override 'schedule.sed=3':1:1: unknown key 'sed'"),
        ("optimizer.lr=x", "override 'optimizer.lr=x':1:14: optimizer.lr: expected a number"),
        ('optimizer.lr="2e-4"', "override 'optimizer.lr=\"2e-4\"':1:14: optimizer.lr: expected"),
        ("model.axes_dim=[2, x]", "override 'model.axes_dim=[2, x]':1:20: model.axes_dim"),
        ("model.axes_dim=[2, ", "override 'model.axes_dim=[2, ':1:20: not YAML"),
        ("data.path=${NO}", "override 'data.path=${NO}':1:11: the environment variable NO"),
        ("base=x.yaml", "override 'base=x.yaml':1:1: base: can only stand in a file"),
        ("schedule=3", "override 'schedule=3':1:10: schedule: expected a mapping of keys, got 3"),
    ],
)
def test_faults_of_an_override(faults: Faults, override: str, fault: str) -> None:
    assert [line for line in faults(overrides=[override]) if line.startswith(fault)]


def test_the_process_environment_is_the_default(
    folder: Path, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECIPE_TEST_SEED", "77")
    (folder / "r.yaml").write_text(small)
    assert load("r.yaml", ["schedule.seed=${RECIPE_TEST_SEED}"]).recipe.schedule.seed == 77
