# SPDX-License-Identifier: Apache-2.0
"""`mxtree verify`: is the tree what its manifest says?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="verify")(verify)


def verify(
    tree: Annotated[Path | None, typer.Argument(show_default="trees/default")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Recompute every hash of a tree and name each differing, missing or extra file.

    Exit status 1 when there is any.
    """
    from mxtree.errors import ExitCode
    from mxtree.project import find_project
    from mxtree.tree.report import print_verification
    from mxtree.tree.verify import verify as verify_tree

    where = (tree or find_project().default_tree).absolute()
    differences = verify_tree(where)
    print_verification(where, differences, as_json=as_json)
    return ExitCode.CHECK_FAILED if differences else ExitCode.OK
