# SPDX-License-Identifier: Apache-2.0
"""`mxtree drift`: what will hurt at the next rebase?"""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="drift")(drift)


def drift(
    upstream: Annotated[
        list[str] | None, typer.Argument(metavar="UPSTREAM", show_default="all")
    ] = None,
    onto: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Look no further than this.", show_default="newest"),
    ] = None,
    source: Annotated[
        str,
        typer.Option(
            metavar="SOURCE", help="index: pinned releases. git:PATH: commits of this clone."
        ),
    ] = "index",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Show what upstream did to the symbols that the patches change since their base.

    Each symbol of a patch's Changes: field is followed through the newer releases: changed,
    moved, vanished. Only a report: nothing is written, and the exit status is 0.
    """
    from mxtree.drift.report import print_drift
    from mxtree.drift.survey import survey
    from mxtree.project import find_project
    from mxtree.upstreams import Source

    found = survey(find_project(), upstream or (), Source.parse(source), onto)
    print_drift(found, as_json=as_json)
