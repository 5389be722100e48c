# SPDX-License-Identifier: Apache-2.0
"""`mxtree status`: where am I, and what next?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="status")(status)


def status(
    tree: Annotated[Path | None, typer.Argument(show_default="trees/default")] = None,
    patches: Annotated[
        bool, typer.Option("--patches", help="Every patch: age, size, upstream status, tests.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Show pins, series, tree and differences on one screen, and the next command."""
    from mxtree.project import find_project
    from mxtree.tree.overview import overview
    from mxtree.tree.report import print_overview, print_status
    from mxtree.tree.status import collect_status

    project = find_project()
    if patches:
        print_overview(overview(project), as_json=as_json)
        return
    print_status(collect_status(project, (tree or project.default_tree).absolute()), as_json)
