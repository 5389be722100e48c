# SPDX-License-Identifier: Apache-2.0
"""Reports about runs, made by the overlay: `mxflux.reports`."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mxtree.environment.overlay import use_overlay
from mxtree.errors import ExitCode, FatalError
from mxtree.project import find_project
from mxtree.recipes.access import recipe_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


def report_run(run: Path, output: Path | None) -> None:
    """Write the report of a run and say where. Raises `FatalError` when there is no run."""
    _require_there([run])
    use_overlay(find_project().overlay, "mxflux.reports.command")
    from mxflux.reports import command

    with _errors():
        state, written = command.report_run(run, output)
    print(state)
    _say(written)


def report_compare(
    runs: Sequence[Path],
    output: Path | None,
    *,
    envelope: Sequence[Path],
    tolerance: float | None,
    assert_equal: bool,
    partial: bool,
    as_json: bool,
) -> int:
    """Compare runs, print the verdict and return the exit code that goes with it."""
    _require_there([*runs, *envelope])
    use_overlay(find_project().overlay, "mxflux.reports.command")
    from mxflux.reports import command

    with _errors():
        comparison, written = command.report_compare(
            runs,
            output,
            envelope=envelope,
            tolerance=tolerance,
            assert_equal=assert_equal,
            partial=partial,
        )
    result = command.to_json(comparison)
    print(json.dumps(result, indent=2) if as_json else result["verdict"])
    _say(written)
    return int(comparison.exit_code)


def report_mlperf(
    runs: Sequence[Path],
    rulesets: Sequence[str],
    *,
    as_json: bool,
    tree: Path | None,
    python: Path | None,
) -> int:
    """Run the checkers in the environment of a tree, which has them; return their exit code."""
    from mxtree.environment.modules import find_python, run_module

    _require_there(runs)
    found = find_python(tree or find_project().default_tree, python)
    options = [option for ruleset in rulesets for option in ("--ruleset", ruleset)]
    options += ["--json"] if as_json else []
    return run_module(found, "mxflux.reports.mlperf", [*options, *map(str, runs)])


def _require_there(runs: Sequence[Path]) -> None:
    """Raise `FatalError` with the commands that make the runs which are not there."""
    missing = [run for run in dict.fromkeys(runs) if not run.exists()]
    if missing:
        raise FatalError(
            f"no such run: {', '.join(map(str, missing))}",
            hint=" && ".join(f"./mxtree run {_recipe_of(run)}" for run in missing),
            code=ExitCode.COULD_NOT_CHECK,
        )


def _recipe_of(run: Path) -> str:
    """Return the shipped recipe that a run directory is named after, if it is one."""
    project = find_project()
    found = [path for path in recipe_files(project.recipes) if path.stem == run.name]
    if len(found) != 1:
        return f"RECIPE --run-dir {run}"
    is_default = run.absolute() == project.root / "runs" / run.name
    name = str(found[0].relative_to(project.recipes).with_suffix(""))
    return name if is_default else f"{name} --run-dir {run}"


@contextmanager
def _errors() -> Iterator[None]:
    from mxflux.reports.errors import ReportError

    try:
        yield
    except ReportError as error:
        raise FatalError(
            str(error), hint="./mxtree run RECIPE", code=ExitCode.COULD_NOT_CHECK
        ) from error
    except OSError as error:
        raise FatalError(
            f"{error.filename}: {error.strerror}", code=ExitCode.COULD_NOT_CHECK
        ) from error


def _say(written: Sequence[Path]) -> None:
    for path in written:
        print(f"written: {path}", file=sys.stderr)
