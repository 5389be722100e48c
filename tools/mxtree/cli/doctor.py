# SPDX-License-Identifier: Apache-2.0
"""`mxtree doctor`: what is missing on this machine, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="doctor")(doctor)


def doctor(
    python: Annotated[
        Path | None,
        typer.Option(help="Training environment to look into.", show_default="the tree's"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> int:
    """Say what is missing on this machine.

    Looks at git, Python, disk, network, torch, GPUs, AITER and TransformerEngine.

    Exit status 1 when something that mxtree itself needs is not as it should be.
    """
    from mxtree.environment.doctor import screen
    from mxtree.errors import ExitCode

    rows = screen.examine(python)
    print(screen.as_json(rows) if as_json else screen.text(rows))
    return ExitCode.CHECK_FAILED if any(row.fails for row in rows) else ExitCode.OK
