# SPDX-License-Identifier: Apache-2.0
"""`mxtree lint`: is everything in patches/ as it should be?"""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="lint")(lint)


def lint(
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Report everything malformed in patches/ at file:line with the fix, in one pass.

    Exit status 1 when there is any.
    """
    from mxtree.errors import ExitCode
    from mxtree.lint import lint as lint_project
    from mxtree.lint.report import as_json as to_json
    from mxtree.lint.report import as_text
    from mxtree.project import find_project

    report = lint_project(find_project())
    print(to_json(report) if as_json else "\n".join(as_text(report)))
    return ExitCode.CHECK_FAILED if report.problems else ExitCode.OK
