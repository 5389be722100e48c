# SPDX-License-Identifier: Apache-2.0
"""`mxtree fetch`: bring upstream releases into the cache, to work offline afterwards."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="fetch")(fetch)


def fetch(
    upstream: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[UPSTREAM[@VERSION]]...",
            help="NAME, NAME@VERSION or NAME@all.",
            show_default="the default release of every upstream",
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[UPSTREAM=]SOURCE",
            help="index, git, git:URL_OR_PATH[@COMMIT] or dir:PATH; for one upstream or for all.",
        ),
    ] = None,
    pin: Annotated[
        str | None,
        typer.Option(
            metavar="UPSTREAM@VERSION",
            help="Add a release of the index to patches/upstreams.toml, or check the one there.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Download and import upstream releases; later commands need no network for them."""
    if pin is not None:
        if upstream or source:
            raise typer.BadParameter("takes no other upstream and no --source", param_hint="--pin")
        _pin(pin, as_json=as_json)
        return
    _fetch(upstream or [], source or [], as_json=as_json)


def _fetch(wanted: list[str], options: list[str], *, as_json: bool) -> None:
    import json

    from mxtree.cli._sources import parse_sources
    from mxtree.project import find_project
    from mxtree.upstreams.fetch import fetch as fetch_releases

    project = find_project()
    found = fetch_releases(project, wanted, parse_sources(project, options))
    if as_json:
        print(json.dumps([item.as_dict() for item in found], indent=2))
    else:
        print(*found, sep="\n")


def _pin(text: str, *, as_json: bool) -> None:
    import json

    from mxtree.project import find_project
    from mxtree.upstreams.pin import pin

    name, separator, version = text.partition("@")
    if not separator:
        raise typer.BadParameter("must be UPSTREAM@VERSION", param_hint="--pin")
    entry, added = pin(find_project(), name, version)
    if as_json:
        print(json.dumps({"upstream": name, "version": version, "added": added, "entry": entry}))
    else:
        print(
            "added:" if added else "pinned already, and the index agrees:", entry, sep="\n", end=""
        )
