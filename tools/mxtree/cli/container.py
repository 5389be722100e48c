# SPDX-License-Identifier: Apache-2.0
"""`mxtree container`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("container")(container)


def container(
    base: Annotated[str, typer.Option(help="Image to build on, best name:tag@sha256:DIGEST.")],
    tree: Annotated[Path | None, typer.Argument(show_default="trees/default")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path("out/container"),
    python: Annotated[str, typer.Option(help="Interpreter inside the image.")] = "python3",
    with_deps: Annotated[
        bool, typer.Option("--with-deps", help="Install what the image lacks, torch excepted.")
    ] = False,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="DIST", help="Leave a distribution of the tree out (repeatable)."),
    ] = None,
    allow_modified: Annotated[
        bool, typer.Option("--allow-modified", help="Pack a tree that differs from its manifest.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the lock as JSON.")] = False,
) -> None:
    """Write a Containerfile with the tree's wheels, and a lock file.

    Nothing is built here. The image gets no environment of the launcher: each run sets its own.
    """
    from mxtree.launch import container as room
    from mxtree.launch.report import note
    from mxtree.project import find_project

    request = room.Request(
        tree=(tree or find_project().default_tree).absolute(),
        base=base,
        out=out,
        python=python,
        with_deps=with_deps,
        without=room.check_names(without or []),
        allow_modified=allow_modified,
    )
    written = room.write(request)
    for line in written.notes:
        note(line)
    print(written.lock.read_text("utf-8") if as_json else written.containerfile)
    note(f"next: podman build -f {written.containerfile} {out}    (or docker build)")
