# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a recipe: one Problem a fault, all of them in one RecipeError."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Problem:
    """One fault and its place. line and column count from 1; 0: the whole file."""

    file: str
    line: int
    column: int
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.message}" + (f" ({self.hint})" if self.hint else "")


class RecipeError(ValueError):
    """A recipe that cannot run. ``problems`` has every fault, in the order of the files."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))
