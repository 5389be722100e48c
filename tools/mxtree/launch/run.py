# SPDX-License-Identifier: Apache-2.0
"""`mxtree run`: from a recipe to a plan, a run directory and ranks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mxtree.environment import venv
from mxtree.errors import ExitCode, FatalError
from mxtree.launch import identity, machine, report
from mxtree.launch.request import MANY_NODES
from mxtree.recipes.access import find_recipe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxtree.launch.identity import Code
    from mxtree.launch.request import RunRequest
    from mxtree.project import Project

SCRIPT = "run.sbatch"


def run(project: Project, request: RunRequest) -> int:
    """Do what ``request`` asks for and return the exit status of the run."""
    request.check()
    code = identity.choose(project, request)
    with _as_fatal_errors():
        plan = _plan(project, request, code)
        if request.dry_run:
            return _dry_run(plan, request, code)
        found = identity.environment_of(code, request)
        facts = identity.record(code, found, allow_modified=request.allow_modified)
        more = {"argv": sys.argv[1:], "environment_delta": plan.environment.to_json()}
        return _launch(plan, request, code, {**facts, **more})


@contextmanager
def _as_fatal_errors() -> Iterator[None]:
    """Show what the overlay refuses as the tool shows its own errors."""
    from mxflux.recipe import RecipeError
    from mxflux.recipe.launch.errors import LaunchError
    from mxflux.recipe.launch.supervise import RUNTIME

    try:
        yield
    except RecipeError as error:
        count = len(error.problems)
        raise FatalError(
            f"the recipe cannot run: {count} problem{'s' if count > 1 else ''}",
            details=[str(problem) for problem in error.problems],
        ) from error
    except LaunchError as error:
        code = ExitCode(error.code)
        raise FatalError(str(error), details=error.details, hint=error.hint, code=code) from error
    except OSError as error:
        raise FatalError(
            f"the run directory or a file of it: {error}",
            hint="make room or give access, then run the same command again: nothing is lost",
            code=ExitCode(RUNTIME),
        ) from error


def _plan(project: Project, request: RunRequest, code: Code) -> Any:
    from mxflux.recipe import load
    from mxflux.recipe.launch.plan import make_plan

    loaded = load(find_recipe(project, request.recipe), request.all_overrides())
    name = loaded.recipe.name + (f".fake-{request.fake_world}" if request.fake_world else "")
    folder = request.run_dir or project.root / "runs" / name
    python = request.python or venv.python_of(venv.default_location(code.tree))
    return make_plan(
        loaded,
        folder.absolute(),
        str(python.absolute()),
        os.environ,
        fake_world=request.fake_world,
    )


def _dry_run(plan: Any, request: RunRequest, code: Code) -> int:
    from mxflux.recipe.launch import slurm

    start, refusal = _examine(plan, request, code)
    script = slurm.script(plan) if request.slurm else None
    if request.as_json:
        print(report.as_json(plan, code, start, refusal, script))
    else:
        print(report.text(plan, code, start, refusal))
        if script:
            print(f"\n--- {SCRIPT}\n{script}", end="")
    return ExitCode.USAGE if plan.problems or refusal else ExitCode.OK


def _examine(plan: Any, request: RunRequest, code: Code) -> tuple[Any, str | None]:
    """Return how the run would start, or why it would not."""
    from mxflux.recipe.launch import rundir
    from mxflux.recipe.launch.errors import LaunchError

    if request.fresh:
        return rundir.Start("new"), None
    try:
        return rundir.examine(plan.run, plan.loaded, code.digest, resume=request.resume), None
    except LaunchError as error:
        return None, "\n".join([str(error), *error.details, f"next: {error.hint}"])


def _launch(plan: Any, request: RunRequest, code: Code, facts: dict[str, object]) -> int:
    from mxflux.recipe.launch import supervise
    from mxtree.launch import live

    recipe = plan.loaded.recipe
    if recipe.launch.nodes > 1 and not (request.slurm or plan.fake_world):
        raise FatalError(f"launch.nodes={recipe.launch.nodes}: {MANY_NODES}")
    if plan.problems:
        raise FatalError("the run cannot start", details=plan.problems)
    versions = cast("dict[str, str]", facts["versions"])
    machine.check_extras(recipe.logging, Path(plan.python), versions)
    if not request.slurm:
        ranks = 1 if plan.fake_world else recipe.launch.nproc_per_node
        machine.check_gpus(recipe.device, ranks, lambda: machine.gpus(Path(plan.python)))
        machine.check_port(recipe.launch.master_port)
    if not _prepare(plan, request, code, facts):
        return ExitCode.OK
    if request.slurm:
        return _write_script(plan, submit=request.submit)
    environment = plan.environment.apply(os.environ)
    known = ("tree_digest", "overlay_digest", "tree_modified", "versions", "environment_delta")
    now = {key: facts[key] for key in known}
    with live.streams(sys.stdout, sys.stderr) as (console, notes):
        settings = supervise.Settings(recipe.launch.max_restarts, console=console, notes=notes)
        return int(supervise.supervise(plan.run, plan.argv, environment, settings, **now))


def _prepare(plan: Any, request: RunRequest, code: Code, facts: dict[str, object]) -> bool:
    """Make the run directory or take it over, and say which; False when nothing is left to do."""
    from mxflux.recipe.launch import rundir, supervise

    if request.fresh and plan.run.exists():
        with supervise.hold(plan.run):
            report.note(f"moved the old run aside: {rundir.move_aside(plan.run)}")
    start = rundir.examine(plan.run, plan.loaded, code.digest, resume=request.resume)
    for line in (*code.notes, *report.environment_notes(plan), *start.notes):
        report.note(line)
    report.note(report.start_line(plan, start))
    if start.kind == "new":
        made = {**facts, "world_size": plan.world_size, "fake_world": plan.fake_world}
        rundir.create(plan.run, plan.loaded, made)
    elif start.kind == "resume":
        with supervise.hold(plan.run):
            rundir.adopt(plan.run, plan.loaded)
    # What one step of an imagined world showed is never too much to see again.
    return bool(start.kind != "finished" or plan.fake_world)


def _write_script(plan: Any, *, submit: bool) -> int:
    from mxflux.recipe.launch import slurm

    path = plan.run / SCRIPT
    path.write_text(slurm.script(plan), encoding="utf-8")
    path.chmod(0o755)
    if not submit:
        print(path)
        report.note(f"not submitted; to do so: sbatch {path}    (or --submit)")
        return ExitCode.OK
    if shutil.which("sbatch") is None:
        raise FatalError(
            "sbatch is not on PATH, so nothing was submitted",
            hint=f"on a login node of the cluster: sbatch {path}",
            code=ExitCode.COULD_NOT_CHECK,
        )
    process = subprocess.run(["sbatch", str(path)], check=False)
    return ExitCode.OK if process.returncode == 0 else ExitCode.COULD_NOT_CHECK
