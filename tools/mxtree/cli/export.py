# SPDX-License-Identifier: Apache-2.0
"""`mxtree export`: the commits of a tree become the patch series."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="export")(export)


def export(
    tree: Annotated[Path | None, typer.Argument(show_default="trees/default")] = None,
    upstream: Annotated[
        list[str] | None, typer.Option(help="Only this upstream.", show_default="all")
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Write nothing; exit 1 when something would change. Without a tree, a fresh one "
            "is built aside and checked.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing; show what would change.")
    ] = False,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Also rewrite line numbers and object ids.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Write the commits of a tree back to patches/; only files whose content changed.

    File names and numbers survive amend, reword and reorder; `series` alone holds the order.
    """
    from mxtree.edit.export import plan_exports, write_exports
    from mxtree.edit.fresh import tree_to_export
    from mxtree.edit.report import print_exports
    from mxtree.errors import ExitCode
    from mxtree.project import find_project

    project = find_project()
    names = upstream or ()
    with tree_to_export(project, tree, check=check, names=names) as where:
        exports = plan_exports(project, where, names, refresh=refresh)
        is_clean = all(item.plan.is_clean for item in exports)
        if not (check or dry_run):
            write_exports(where, exports)
    print_exports([item.plan for item in exports], written=not (check or dry_run), as_json=as_json)
    return ExitCode.OK if is_clean or not check else ExitCode.CHECK_FAILED
