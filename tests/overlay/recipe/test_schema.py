# SPDX-License-Identifier: Apache-2.0
"""The schema itself: described, frozen, torch-free, and read by something."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

import mxflux
from mxflux.recipe import Recipe
from mxflux.recipe.keys import all_keys, section_of
from mxflux.recipe.schema import SECTIONS

PACKAGE = Path(mxflux.__file__).parent


def test_every_key_has_a_description() -> None:
    for key in all_keys().values():
        assert key.description.endswith((".", ")")) or key.description, key.name
        assert len(key.description) > 3, key.name
    for name in SECTIONS:
        field = Recipe.model_fields[name]
        assert field.description
        assert section_of(name).__doc__  # type: ignore[union-attr]


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


DERIVED = {
    "name": "the run directory and the log",
    "description": "for people",
    "expect_overridden": "mxflux.recipe.effective",
}


def test_every_key_is_read_by_some_code() -> None:
    """An attribute of its name is read, or Megatron's argument is compared, outside the schema."""
    read: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        if "schema" in path.parts or "rules" in path.parts:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                read.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                read.update(node.value.split())
                read.update(part.rpartition(".")[2] for part in node.value.split())
    unread = [
        key for key in all_keys() if key.rpartition(".")[2] not in read and key not in DERIVED
    ]
    assert unread == []
