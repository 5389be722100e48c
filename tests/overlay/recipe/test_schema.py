# SPDX-License-Identifier: Apache-2.0
"""The schema itself: described, frozen, torch-free, and read by something."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

import mxflux
from mxflux.recipe import Recipe
from mxflux.recipe.keys import all_keys, section_of
from mxflux.recipe.schema import SECTIONS
from mxflux.recipe.schema.recipe import ARCHITECTURE_KEYS

PACKAGE = Path(mxflux.__file__).parent


def test_every_key_has_a_description() -> None:
    for key in all_keys().values():
        assert key.description.endswith((".", ")")) or key.description, key.name
        assert len(key.description) > 3, key.name
    for name in SECTIONS:
        field = Recipe.model_fields[name]
        assert field.description
        assert section_of(name).__doc__


def test_sections_are_those_of_the_reference() -> None:
    assert SECTIONS == (
        "launch", "model", "precision", "data", "schedule", "optimizer", "parallel", "checkpoint",
        "evaluation", "compile", "logging", "mlperf", "probes",
    )  # fmt: skip


def test_a_recipe_cannot_be_changed() -> None:
    recipe = Recipe.model_validate(
        {
            "name": "x",
            "device": "cpu",
            "launch": {"nproc_per_node": 1},
            "model": {"preset": "flux_tiny", "axes_dim": [8, 12, 12]},
            "data": {"kind": "digits"},
            "schedule": {"train_iters": 1, "micro_batch_size": 1, "global_batch_size": 1},
            "optimizer": {"lr": 1.0},
        }
    )
    with pytest.raises(ValidationError, match="frozen"):
        recipe.schedule.seed = 3
    assert isinstance(recipe.model.axes_dim, tuple)


def test_recipes_need_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; import mxflux.recipe, mxflux.recipe.memory, mxflux.recipe.megatron_arguments;"
        "import mxflux.recipe.effective;"
        "found = {'torch', 'triton', 'megatron', 'numpy'} & set(sys.modules);"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_keys_that_memory_and_megatron_name_exist() -> None:
    from mxflux.recipe.megatron_arguments import ARGUMENTS

    assert set(ARGUMENTS) <= set(all_keys())


READERS = ("training", "data", "evaluation", "recipe/launch")
"""Rooms that act on a recipe."""
READ_ELSEWHERE = {
    "description": "people",
    "expect_overridden": "mxflux.recipe.effective",
    "model.preset": "Recipe.architecture",
    "model.position_embedding_type": "mxflux.training.configs, and Megatron's arguments",
}


def parsed() -> Iterator[ast.Module]:
    for room in READERS:
        for path in (PACKAGE / room).rglob("*.py"):
            yield ast.parse(path.read_text(encoding="utf-8"))


def test_every_key_is_read_by_code_that_acts_on_it() -> None:
    read: set[str] = set()
    for tree in parsed():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                read.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                read.add(node.value.rpartition(".")[2])
    sizes = {f"model.{name}" for name in ARCHITECTURE_KEYS}
    names = {key: key.rpartition(".")[2] for key in all_keys() if key not in sizes}
    assert {key for key, name in names.items() if name not in read} <= set(READ_ELSEWHERE)


def test_code_reads_no_key_that_does_not_exist() -> None:
    known = {tuple(key.split("."))[:2] for key in all_keys() if "." in key}
    wrong = [
        f"{node.value.attr}.{node.attr}, line {node.lineno}"
        for tree in parsed()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr in SECTIONS
        and ast.unparse(node.value.value).endswith("recipe")
        and (node.value.attr, node.attr) not in known
    ]
    assert wrong == []
