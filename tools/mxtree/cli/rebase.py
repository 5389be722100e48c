# SPDX-License-Identifier: Apache-2.0
"""`mxtree rebase`: carry a series to another release of its upstream."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="rebase")(rebase)


def rebase(
    upstream: Annotated[str, typer.Argument(help="megatron-lm or transformer-engine.")],
    onto: Annotated[
        str | None, typer.Option(metavar="VERSION|TAG|COMMIT|newest", help="Where to carry it.")
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="VERSION", help="Series to carry.", show_default="the pin"),
    ] = None,
    source: Annotated[
        str,
        typer.Option(metavar="SOURCE", help="index, git, git:URL_OR_PATH: where both bases are."),
    ] = "index",
    exec_command: Annotated[
        str | None, typer.Option("--exec", metavar="CMD", help="Run this after each patch.")
    ] = None,
    backport: Annotated[
        bool, typer.Option("--backport", help="Allow an older release as the new base.")
    ] = False,
    keep_pin: Annotated[
        bool, typer.Option("--keep-pin", help="Finish without making it the default version.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what would become of each patch.")
    ] = False,
    all_known: Annotated[
        bool, typer.Option("--all-known", help="With --dry-run: for every pinned release.")
    ] = False,
    find_last_good: Annotated[
        bool, typer.Option("--find-last-good", help="Name the newest release without a conflict.")
    ] = False,
    continue_: Annotated[
        bool, typer.Option("--continue", help="The conflict is resolved and staged: go on.")
    ] = False,
    skip: Annotated[bool, typer.Option("--skip", help="Leave the patch at hand out.")] = False,
    reason: Annotated[str, typer.Option(help="Why --skip leaves it out.")] = "",
    abort: Annotated[bool, typer.Option("--abort", help="Give up; all is as before.")] = False,
    finish: Annotated[
        bool, typer.Option("--finish", help="Write the new series directory and move the pin.")
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take the last --finish back.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Carry a patch series to another release: 3-way, patch by patch, resumable.

    Conflicts are resolved with plain git in a private work tree. The old series and the pins stay
    until --finish.
    """
    from mxtree.rebase.verbs import Options, run

    return run(
        Options(
            upstream=upstream,
            onto=onto,
            from_version=from_,
            source=source,
            exec_command=exec_command,
            backport=backport,
            keep_pin=keep_pin,
            dry_run=dry_run,
            all_known=all_known,
            find_last_good=find_last_good,
            verbs={
                "continue": continue_,
                "skip": skip,
                "abort": abort,
                "finish": finish,
                "undo": undo,
            },
            reason=reason,
            as_json=as_json,
        )
    )
