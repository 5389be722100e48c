# SPDX-License-Identifier: Apache-2.0
"""`mxtree install`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("install")(install)


def install(
    tree: Annotated[Path | None, typer.Argument(show_default="trees/default")] = None,
    python: Annotated[
        Path | None,
        typer.Option(help="Interpreter of an existing environment; its torch is never touched."),
    ] = None,
    env: Annotated[
        Path | None, typer.Option(help="Where to make the environment. [default: TREE.venv]")
    ] = None,
    with_deps: Annotated[
        bool, typer.Option("--with-deps", help="With --python: install missing packages.")
    ] = False,
    no_deps: Annotated[
        bool, typer.Option("--no-deps", help="With --python: do not look for missing packages.")
    ] = False,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="DIST", help="Leave a distribution of the tree out (repeatable)."),
    ] = None,
    replace: Annotated[
        list[str] | None,
        typer.Option(metavar="DIST", help="Remove a foreign one for ours (repeatable)."),
    ] = None,
    ignore_requires_python: Annotated[
        bool, typer.Option("--ignore-requires-python", help="Try a Python that upstream excludes.")
    ] = False,
    public_version: Annotated[
        bool,
        typer.Option("--public-version", help="Install as upstream's version, without +mxtree."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,
) -> None:
    """Install a tree, editable, and prove it.

    Into a new environment beside the tree (Python 3.12 and torch, gigabytes), or with --python into
    an existing one, whose torch and triton are never touched.
    """
    from mxtree.environment import foreign, report
    from mxtree.environment.install import InstallRequest
    from mxtree.environment.install import install as run
    from mxtree.environment.packages import policy
    from mxtree.errors import FatalError
    from mxtree.project import find_project

    if python is not None and env is not None:
        raise FatalError("--python names an environment and --env a place for a new one: use one")
    if python is None and (with_deps or no_deps):
        raise FatalError("--with-deps and --no-deps are about an existing environment (--python)")
    request = InstallRequest(
        tree=(tree or find_project().default_tree).absolute(),
        python=python,
        env=env.absolute() if env else None,
        dependencies=policy(with_deps=with_deps, no_deps=no_deps),
        without=foreign.check_names(without or (), "--without"),
        replace=foreign.check_names(replace or (), "--replace"),
        ignore_requires_python=ignore_requires_python,
        public_version=public_version,
    )
    report.installed(run(request), as_json=as_json)
