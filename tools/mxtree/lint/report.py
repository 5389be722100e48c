# SPDX-License-Identifier: Apache-2.0
"""Print what a check of patches/ found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mxtree.lint.model import Report
    from mxtree.series import Problem

#: Version of the JSON form.
SCHEMA = 1


def as_text(report: Report) -> Iterator[str]:
    """Yield the lines for a reader: problems, notes, and one line that sums up."""
    for problem in report.problems:
        yield _line(report.root, problem)
    for note in report.notes:
        yield f"note: {_line(report.root, note)}"
    looked_at = f"{_count(report.patches, 'patch', 'patches')} in {report.series} series"
    found = _count(len(report.problems), "problem", "problems") if report.problems else "all well"
    yield f"{looked_at}: {found}"


def as_json(report: Report) -> str:
    """Return the report as one JSON document; paths are relative to the project."""
    document = {
        "schema": SCHEMA,
        "ok": not report.problems,
        "series": report.series,
        "patches": report.patches,
        "problems": [_row(report.root, problem) for problem in report.problems],
        "notes": [_row(report.root, note) for note in report.notes],
    }
    return json.dumps(document, indent=2)


def _row(root: Path, problem: Problem) -> dict[str, str | int]:
    return {
        "path": _relative(root, problem.path),
        "line": problem.line,
        "rule": problem.rule,
        "message": problem.message,
        "fix": problem.fix,
    }


def _line(root: Path, problem: Problem) -> str:
    where = _relative(root, problem.path)
    place = f"{where}:{problem.line}" if problem.line else where
    return f"{place}: {problem.message} [{problem.rule}]; {problem.fix}"


def _relative(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
