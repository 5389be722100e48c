# SPDX-License-Identifier: Apache-2.0
"""A resolved recipe loads back to itself, byte for byte, with the origins it had."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxflux.recipe import Origin, Recipe, load
from mxflux.recipe.keys import all_keys

if TYPE_CHECKING:
    from conftest import Load

OVERRIDES = [
    "optimizer.adam_eps=1e-8",
    "model.axes_dim=[16, 8, 8]",
    'launch.environment={NCCL_DEBUG: "1", X: "a, b: $$c # d"}',
    "expect_overridden=[parallel.overlap_grad_reduce]",
    "launch.slurm.extra=['--constraint=mi355x']",
]


def test_resolved_with_origins_round_trips(load_text: Load, small: str, folder: Path) -> None:
    first = load_text(small + 'description: "50 % of ${WHAT} \\u00e9"\n', OVERRIDES, {"WHAT": "it"})
    written = first.dump_resolved()
    (folder / "resolved.yaml").write_bytes(written)
    second = load("resolved.yaml", environ={})
    assert second.recipe == first.recipe
    assert second.dump_resolved() == written
    assert second.origins == first.origins


def test_resolved_without_origins_round_trips(load_text: Load, folder: Path) -> None:
    first = load_text(overrides=OVERRIDES).recipe
    (folder / "resolved.yaml").write_bytes(first.dump_resolved())
    second = load("resolved.yaml", environ={}).recipe
    assert second == first
    assert second.dump_resolved() == first.dump_resolved()


def test_every_key_is_written_once(load_text: Load) -> None:
    loaded = load_text()
    lines = loaded.dump_resolved().decode().splitlines()
    assert sum("  # @ " in line for line in lines) == len(all_keys())
    assert lines[0] == "# mxtree resolved recipe, format 1"


def test_an_override_of_a_resolved_recipe_is_its_origin(load_text: Load, folder: Path) -> None:
    (folder / "resolved.yaml").write_bytes(load_text().dump_resolved())
    loaded = load("resolved.yaml", ["schedule.seed=3"], {})
    assert str(loaded.origins["schedule.seed"]) == "command line"
    assert str(loaded.origins["device"]) == "r.yaml:1"


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.text(max_size=40),
    st.floats(min_value=1e-30, max_value=1e30),
)
def test_any_text_and_number_round_trips(load_text: Load, text: str, number: float) -> None:
    recipe = load_text().recipe
    optimizer = recipe.optimizer.model_copy(update={"lr": number})
    changed = recipe.model_copy(update={"description": text, "optimizer": optimizer})
    written = changed.dump_resolved()
    loaded = load_text(written.decode()).recipe
    assert loaded == changed
    assert loaded.dump_resolved() == written


def test_origins_are_read_back() -> None:
    for origin in (
        Origin("default"),
        Origin("command line", variables=("A",)),
        Origin("file", "a b/c:d.yaml", 12, ("A", "B")),
        Origin("file name"),
    ):
        assert Origin.parse(str(origin)) == origin


def test_a_recipe_made_in_python_is_checked_too() -> None:
    given = Recipe(
        name="x",
        device="cpu",
        launch={"nproc_per_node": 1},  # type: ignore[arg-type]
        model={"preset": "flux_tiny"},  # type: ignore[arg-type]
        data={"kind": "digits"},  # type: ignore[arg-type]
        schedule={"train_iters": 1, "micro_batch_size": 1, "global_batch_size": 1},  # type: ignore[arg-type]
        optimizer={"lr": 1.0},  # type: ignore[arg-type]
    )
    assert given.world_size == 1
