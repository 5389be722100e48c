# SPDX-License-Identifier: Apache-2.0
"""Validate recipes: every fault of every file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mxflux.recipe import Problem

FORMAT = 1


@dataclass(frozen=True)
class Checked:
    """What is wrong with one file."""

    path: Path
    problems: tuple[Problem, ...]


def check(paths: Sequence[Path], overrides: Sequence[str] = ()) -> list[Checked]:
    """Load each file; nothing is run."""
    return [Checked(path, _problems(path, overrides)) for path in paths]


def _problems(path: Path, overrides: Sequence[str]) -> tuple[Problem, ...]:
    from mxflux.recipe import RecipeError, load

    try:
        load(path, overrides)
    except RecipeError as error:
        return error.problems
    return ()


def as_text(results: Sequence[Checked]) -> str:
    """One line a file that is well, one line a fault otherwise; a fault of a base once."""
    lines: list[str] = []
    for result in results:
        if not result.problems:
            lines.append(f"ok {result.path}")
        lines += [str(problem) for problem in result.problems]
    bad = sum(bool(result.problems) for result in results)
    lines.append(f"{len(results) - bad} of {len(results)} recipes can run")
    return "\n".join(dict.fromkeys(lines))


def as_json(results: Sequence[Checked]) -> dict[str, Any]:
    """The same for machines."""
    return {
        "format": FORMAT,
        "recipes": [
            {
                "path": str(result.path),
                "ok": not result.problems,
                "problems": [asdict(problem) for problem in result.problems],
            }
            for result in results
        ],
    }
