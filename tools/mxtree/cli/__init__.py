# SPDX-License-Identifier: Apache-2.0
"""The command table: one module a command; each imports what it needs only when it runs."""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

from mxtree import __version__

#: Commands in the order of `mxtree --help`: the order in which a newcomer meets them.
COMMANDS = (
    "build",
    "verify",
    "status",
    "fetch",
    "install",
    "data",
    "recipe",
    "run",
    "ckpt",
    "sample",
    "wheel",
    "container",
    "test",
    "lint",
    "export",
    "new",
    "rebase",
    "bench",
    "report",
    "drift",
    "doctor",
)

app = typer.Typer(
    name="mxtree",
    help="Turn pinned upstream releases and patch series into one verified training tree.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich alone would take half of the time that --help has
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        print(f"mxtree {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    pass


for _name in COMMANDS:
    importlib.import_module(f"mxtree.cli.{_name}").register(app)
