# SPDX-License-Identifier: Apache-2.0
"""`mxtree wheel`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("wheel")(wheel)


def wheel(
    tree: Annotated[Path | None, typer.Argument(show_default="trees/default")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the wheels.")] = Path("dist"),
    allow_modified: Annotated[
        bool, typer.Option("--allow-modified", help="Pack a tree that differs from its manifest.")
    ] = False,
    public_version: Annotated[
        bool, typer.Option("--public-version", help="Upstream's version, without +mxtree.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,
) -> None:
    """Make wheels of a tree.

    Of the patched upstreams and of mxflux; versions name the tree's digest, and the same tree gives
    the same bytes on every machine.
    """
    from mxtree.environment import report
    from mxtree.environment.wheel import build_wheels
    from mxtree.project import find_project

    built = build_wheels(
        (tree or find_project().default_tree).absolute(),
        out,
        allow_modified=allow_modified,
        public_version=public_version,
    )
    report.built(built, as_json=as_json)
