# SPDX-License-Identifier: Apache-2.0
"""The recipes of a checkout, one line each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mxtree.recipes.access import recipe_files, recipe_name

from .tables import table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mxflux.recipe import Recipe
    from mxtree.project import Project

FORMAT = 1


@dataclass(frozen=True)
class Entry:
    """One recipe; ``problem`` is its first fault, and then nothing else is known."""

    name: str
    device: str = ""
    ranks: int = 0
    precision: str = ""
    parameters: int = 0
    description: str = ""
    problem: str = ""


def entries(project: Project) -> list[Entry]:
    """Every recipe below recipes/."""
    return [_entry(project, path) for path in recipe_files(project.recipes)]


def _entry(project: Project, path: Path) -> Entry:
    from mxflux.recipe import RecipeError, load

    name = recipe_name(project, path)
    try:
        recipe = load(path).recipe
    except RecipeError as error:
        return Entry(name, problem=str(error.problems[0]))
    return Entry(
        name,
        recipe.device,
        recipe.world_size,
        precision_of(recipe),
        recipe.architecture.num_parameters,
        recipe.description,
    )


def precision_of(recipe: Recipe) -> str:
    """The format of the blocks' linears, and whose they are."""
    p = recipe.precision
    if p.fp4:
        name = str(p.fp4_recipe)
    elif p.fp6:
        name = f"mxfp6 {p.fp6}"
    elif p.fp8:
        name = f"fp8 {p.fp8_recipe}"
    else:
        name = p.params_dtype
    return f"{name} ({'te' if recipe.model.transformer_impl == 'transformer_engine' else 'local'})"


def as_text(found: Sequence[Entry]) -> str:
    """A table for a terminal; faults below it."""
    header = ("recipe", "ranks", "parameters", "precision", "description")
    rows = [
        (e.name, str(e.ranks), f"{e.parameters:,}", e.precision, e.description)
        for e in found
        if not e.problem
    ]
    faults = [f"{e.name}: {e.problem}" for e in found if e.problem]
    return "\n".join([*table(header, rows, right={1, 2}), *faults])


def as_json(found: Sequence[Entry]) -> dict[str, Any]:
    """The same for machines."""
    return {"format": FORMAT, "recipes": [asdict(entry) for entry in found]}
