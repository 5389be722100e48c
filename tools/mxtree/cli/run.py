# SPDX-License-Identifier: Apache-2.0
"""`mxtree run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="run")(run)


def run(
    recipe: Annotated[str, typer.Argument(help="A file, or a name of `recipe ls`.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[SECTION.KEY=VALUE]...", show_default=False)
    ] = None,
    nproc: Annotated[
        int | None, typer.Option(min=1, help="Ranks on a node.", show_default="the recipe's")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Nodes.", show_default="the recipe's")
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Run directory.", show_default="runs/NAME")
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(min=1, help="Save and stop at a step that N divides.")
    ] = None,
    max_restarts: Annotated[
        int | None,
        typer.Option(min=0, help="Starts after a rank died.", show_default="the recipe's"),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show command, environment, paths, batch; run nothing."),
    ] = False,
    fake_world: Annotated[
        int | None,
        typer.Option(min=2, metavar="N", help="One step of rank 0 of N, the others imagined."),
    ] = None,
    slurm: Annotated[bool, typer.Option("--slurm", help="Write an sbatch script.")] = False,
    submit: Annotated[bool, typer.Option("--submit", help="With --slurm: submit it.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on, also with another tree; there must be a run.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Move an existing run aside and start anew.")
    ] = False,
    allow_modified: Annotated[
        bool, typer.Option("--allow-modified", help="Run a tree that differs from its manifest.")
    ] = False,
    python: Annotated[
        Path | None, typer.Option(help="Interpreter of the ranks.", show_default="the tree's")
    ] = None,
    tree: Annotated[Path | None, typer.Option(show_default="trees/default")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: as JSON.")] = False,
) -> int:
    """Train what a recipe says, or show what would run (--dry-run).

    The same command again goes on from the newest checkpoint of the same recipe. Exit status: 0
    finished, or stopped after saving; 1 a check failed; 2 cannot run like that; 3 failed; 130 ^C.
    """
    from mxtree.launch.request import RunRequest
    from mxtree.launch.run import run as launch
    from mxtree.project import find_project

    request = RunRequest(
        recipe=recipe,
        overrides=tuple(overrides or ()),
        nproc=nproc,
        nodes=nodes,
        run_dir=run_dir,
        max_steps=max_steps,
        max_restarts=max_restarts,
        fake_world=fake_world,
        dry_run=dry_run,
        slurm=slurm,
        submit=submit,
        resume=resume,
        fresh=fresh,
        allow_modified=allow_modified,
        python=python,
        tree=tree,
        as_json=as_json,
    )
    return launch(find_project(), request)
