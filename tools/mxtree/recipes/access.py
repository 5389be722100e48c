# SPDX-License-Identifier: Apache-2.0
"""Find recipes of a checkout and load them, with the faults as one error."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree.environment.overlay import use_overlay
from mxtree.errors import ExitCode, FatalError
from mxtree.project import find_project

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mxflux.recipe import Loaded
    from mxtree.project import Project

BASES = "base"
"""Name of the folders whose files only other recipes are built on."""


def open_project() -> Project:
    """The checkout around the working directory, its recipe code ready to import."""
    project = find_project()
    use_overlay(project.overlay, "mxflux.recipe")
    return project


def load_recipe(project: Project, name: str, overrides: Sequence[str] = ()) -> Loaded:
    """The recipe of a path, or of a name below recipes/ without suffix.

    Raises `FatalError` with every fault of the recipe, or with the nearest names.
    """
    from mxflux.recipe import RecipeError, load

    path = find_recipe(project, name)
    try:
        return load(path, overrides)
    except RecipeError as error:
        count = len(error.problems)
        raise FatalError(
            f"{name}: {count} problem{'s' if count > 1 else ''}",
            details=[str(problem) for problem in error.problems],
            hint="mxtree recipe schema --markdown lists every key",
        ) from None


def find_recipe(project: Project, name: str) -> Path:
    """The file that ``name`` means."""
    for candidate in (Path(name), project.recipes / name, project.recipes / f"{name}.yaml"):
        if candidate.is_file():
            return candidate
    known = [recipe_name(project, path) for path in recipe_files(project.recipes)]
    near = difflib.get_close_matches(name.removesuffix(".yaml"), known, n=3, cutoff=0.4)
    raise FatalError(
        f"{name}: no such file, and no such recipe below {project.recipes.name}/",
        details=[f"did you mean {other}?" for other in near],
        hint="mxtree recipe ls",
    )


def recipe_name(project: Project, path: Path) -> str:
    """The short name of a file below recipes/, else its path."""
    try:
        return str(path.absolute().relative_to(project.recipes.absolute()).with_suffix(""))
    except ValueError:
        return str(path)


def recipe_files(folder: Path) -> Iterator[Path]:
    """Every recipe below ``folder``, without those that are bases of others."""
    for path in sorted(folder.rglob("*.yaml")):
        if BASES not in path.relative_to(folder).parts[:-1]:
            yield path


def given_files(paths: Sequence[Path]) -> list[Path]:
    """Recipes of files and folders; `FatalError` for a path or folder that has none."""
    found: list[Path] = []
    for path in paths:
        below = list(recipe_files(path)) if path.is_dir() else [path]
        if not below or not below[0].exists():
            raise FatalError(
                f"{path}: {'no recipe in this folder' if path.is_dir() else 'no such file'}",
                hint="mxtree recipe ls",
                code=ExitCode.USAGE,
            )
        found += below
    return list(dict.fromkeys(found))
