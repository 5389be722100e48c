# SPDX-License-Identifier: Apache-2.0
"""`mxtree test`: everything that has to hold, in environments of its own."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.core import TyperCommand


class _Verbatim(TyperCommand):
    """Keeps every argument, ``--`` included, for tox; takes out only our own ``--json``."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        end = args.index("--") if "--" in args else len(args)
        own = [word for word in args[:end] if word in {"--json", "-h", "--help"}]
        ctx.obj = [word for word in args[:end] if word != "--json"] + args[end:]
        return super().parse_args(ctx, own)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="test", cls=_Verbatim, options_metavar="[--json] [TOX ARGS]")(run_tests)


def run_tests(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> int:
    """Run the tests with tox.

    Without arguments lint, tools, overlay, and the patched tree of the pinned pair with its
    negative controls on the stock one. Arguments are tox's: `-e ENV` (any pyX-mcoreY-teZ),
    `--label NAME`, `-p`, `-r`, `list`, and after `--` arguments of pytest. Several environments run
    side by side where there are four cores and 8 GiB of memory for each.
    """
    import json

    from mxtree.environment import results, summary
    from mxtree.environment.toxrun import exit_code, run_tox
    from mxtree.project import find_project

    run = run_tox(find_project().root, ctx.obj, quiet_stdout=as_json)
    environments = results.read(run.results, run.reports)
    if as_json:
        rows = [environment.to_json() for environment in environments]
        print(json.dumps({"status": run.status, "environments": rows}, indent=2))
    else:
        print("\n".join(["", *summary.lines(environments)]))
    return exit_code(run.status, ran=bool(environments))
