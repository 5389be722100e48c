# SPDX-License-Identifier: Apache-2.0
"""A malformed thing at a line of a file, and what makes it right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Lines of problems that one error shows; `mxtree lint` shows all of them.
_SHOWN = 20


@dataclass(frozen=True, order=True)
class Problem:
    """One finding: where (line 0 is the file or folder as a whole), what, and the fix."""

    path: Path
    line: int
    message: str
    fix: str
    rule: str

    def __str__(self) -> str:
        path = show_path(self.path)
        where = f"{path}:{self.line}" if self.line else path
        return f"{where}: {self.message} ({self.fix})"


def show_path(path: Path) -> str:
    """Return the path as the user would type it: relative when it is below the current folder."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def refuse(directory: Path, problems: Sequence[Problem]) -> None:
    """Raise `FatalError` with every problem at file:line; do nothing when there is none."""
    if not problems:
        return
    count = len(problems)
    number = "1 problem" if count == 1 else f"{count} problems"
    lines = [str(problem) for problem in sorted(problems)]
    if count > _SHOWN:
        lines = [*lines[:_SHOWN], f"and {count - _SHOWN} more"]
    raise FatalError(
        f"the series in {show_path(directory)} has {number}",
        details=lines,
        hint="fix what is named above; `mxtree lint` checks the whole of patches/ in one pass",
        code=ExitCode.USAGE,
    )
