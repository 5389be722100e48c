# SPDX-License-Identifier: Apache-2.0
"""`mxtree build`: upstream releases, patch series and overlay become one tree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="build")(build)


def build(
    out: Annotated[
        Path | None, typer.Option(help="Folder of the tree.", show_default="trees/default")
    ] = None,
    megatron_lm: Annotated[
        str | None, typer.Option("--megatron-lm", metavar="V", help="Release of Megatron-LM.")
    ] = None,
    transformer_engine: Annotated[
        str | None,
        typer.Option("--transformer-engine", metavar="V", help="Release of TransformerEngine."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[UPSTREAM=]SOURCE",
            help="index, git, git:URL_OR_PATH[@COMMIT] or dir:PATH; for one upstream or for all.",
        ),
    ] = None,
    no_patches: Annotated[
        bool, typer.Option("--no-patches", help="Leave the upstreams as they are (control tree).")
    ] = False,
    discard: Annotated[
        bool, typer.Option("--discard", help="Replace a tree even if that loses changes in it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")] = False,
) -> None:
    """Build the tree: pinned upstreams + patch series + overlay, all or nothing.

    The old tree stays in place until the new one is whole.
    """
    from mxtree.cli._sources import parse_sources
    from mxtree.project import find_project
    from mxtree.tree.build import BuildRequest
    from mxtree.tree.build import build as build_tree
    from mxtree.tree.report import print_build

    project = find_project()
    versions = {"megatron-lm": megatron_lm, "transformer-engine": transformer_engine}
    request = BuildRequest(
        out=(out or project.default_tree).absolute(),
        versions={name: version for name, version in versions.items() if version},
        sources=parse_sources(project, source or []),
        patched=not no_patches,
        discard=discard,
    )
    print_build(request.out, build_tree(project, request), as_json=as_json)
