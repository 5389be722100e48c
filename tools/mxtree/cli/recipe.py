# SPDX-License-Identifier: Apache-2.0
"""`mxtree recipe`: list, show, check and compare recipes; nothing is run, no torch is needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Name = Annotated[str, typer.Argument(metavar="RECIPE", help="A file, or a name of `recipe ls`.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[SECTION.KEY=VALUE]...", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the group and its commands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    for name, command in COMMANDS.items():
        group.command(name=name)(command)
    app.add_typer(group, name="recipe", help="List, show, check and compare recipes.")


def ls(as_json: Json = False) -> None:
    """List the recipes of this checkout."""
    from mxtree.recipes import listing
    from mxtree.recipes.access import open_project

    found = listing.entries(open_project())
    _print(listing.as_json(found) if as_json else listing.as_text(found))


def show(
    recipe: Name,
    overrides: Overrides = None,
    resolved: Annotated[
        bool,
        typer.Option("--resolved", help="Every key, as a recipe that loads to the same bytes."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what a recipe sets and where each value comes from."""
    from mxtree.recipes import show as shown
    from mxtree.recipes.access import load_recipe, open_project

    loaded = load_recipe(open_project(), recipe, overrides or ())
    if resolved and not as_json:
        sys.stdout.buffer.write(loaded.dump_resolved())
        return
    _print(shown.as_json(loaded) if as_json else shown.as_text(loaded))


def validate(
    paths: Annotated[list[Path], typer.Argument(help="Files, and folders of them.")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="For each.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Name every fault of every recipe. Exit status 1 when there is one."""
    from mxtree.errors import ExitCode
    from mxtree.recipes import check
    from mxtree.recipes.access import given_files, open_project

    open_project()
    results = check.check(given_files(paths), overrides or ())
    _print(check.as_json(results) if as_json else check.as_text(results))
    failed = any(result.problems for result in results)
    return ExitCode.CHECK_FAILED if failed else ExitCode.OK


def diff(
    left: Annotated[str, typer.Argument(metavar="A")],
    right: Annotated[str, typer.Argument(metavar="B")],
    as_json: Json = False,
) -> None:
    """Show the keys in which two recipes differ, and where each value comes from."""
    from mxtree.recipes import show as shown
    from mxtree.recipes.access import load_recipe, open_project

    project = open_project()
    ours, theirs = load_recipe(project, left), load_recipe(project, right)
    rows = shown.differences(ours, theirs)
    _print(shown.diff_as_json(rows) if as_json else shown.diff_as_text(rows, ours, theirs))


def schema(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Tables for people instead of JSON Schema.")
    ] = False,
) -> None:
    """Print the JSON Schema of a recipe, for an editor."""
    from mxtree.recipes import schema as schemas
    from mxtree.recipes.access import open_project

    open_project()
    _print(schemas.markdown() if markdown else schemas.json_schema())


def memory(
    recipe: Name,
    overrides: Overrides = None,
    dp: Annotated[
        str | None,
        typer.Option("--dp", "--nproc", metavar="N,...", help="Ranks.", show_default="1 to 64"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate the memory of a rank by data-parallel size."""
    from mxtree.recipes import memory as estimates
    from mxtree.recipes.access import load_recipe, open_project

    loaded = load_recipe(open_project(), recipe, overrides or ())
    sizes = estimates.SIZES if dp is None else estimates.parse_sizes(dp)
    result = estimates.estimate(loaded.recipe, sizes)
    _print(result if as_json else estimates.as_text(result))


COMMANDS: dict[str, Callable[..., int | None]] = {
    "ls": ls,
    "show": show,
    "validate": validate,
    "diff": diff,
    "schema": schema,
    "memory": memory,
}


def _print(result: str | dict[str, Any]) -> None:
    print(result if isinstance(result, str) else json.dumps(result, indent=2))
