# SPDX-License-Identifier: Apache-2.0
"""`mxtree report`: what happened, for a reviewer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def register(app: typer.Typer) -> None:
    """Add the group and its commands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    group.command(name="rebase")(rebase)
    app.add_typer(group, name="report", help="Render a result for a reviewer, a mail or a browser.")


def rebase(
    upstream: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this upstream.", show_default="the last")
    ] = None,
    format_: Annotated[
        Literal["md", "html", "json"] | None,
        typer.Option(
            "--format", help="Markdown for a pull request, one HTML file, or the model as JSON."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write it to this file.")
    ] = None,
) -> None:
    """Show the last rebase or forecast: bases, classes, dependencies, range-diff.

    Without --format it goes to the terminal, or as the suffix of FILE says.
    """
    from mxtree.project import find_project
    from mxtree.rebase.story import load_last
    from mxtree.report.output import Format, choose, deliver
    from mxtree.upstreams import load_upstreams

    project = find_project()
    name = load_upstreams(project).get(upstream).name if upstream is not None else None
    wanted = choose(Format(format_) if format_ else None, output)
    deliver(load_last(project, name), wanted, output)
