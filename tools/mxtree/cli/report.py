# SPDX-License-Identifier: Apache-2.0
"""`mxtree report`: what happened, for a reviewer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def register(app: typer.Typer) -> None:
    """Add the group and its commands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    group.command(name="rebase")(rebase)
    group.command(name="run")(run)
    group.command(name="compare")(compare)
    group.command(name="mlperf")(mlperf)
    app.add_typer(group, name="report", help="Render a result for a reviewer, a mail or a browser.")


def rebase(
    upstream: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this upstream.", show_default="the last")
    ] = None,
    format_: Annotated[
        Literal["md", "html", "json"] | None,
        typer.Option(
            "--format", help="Markdown for a pull request, one HTML file, or the model as JSON."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write it to this file.")
    ] = None,
) -> None:
    """Show the last rebase or forecast: bases, classes, dependencies, range-diff.

    Without --format it goes to the terminal, or as the suffix of FILE says.
    """
    from mxtree.project import find_project
    from mxtree.rebase.story import load_last
    from mxtree.report.output import Format, choose, deliver
    from mxtree.upstreams import load_upstreams

    project = find_project()
    name = load_upstreams(project).get(upstream).name if upstream is not None else None
    wanted = choose(Format(format_) if format_ else None, output)
    deliver(load_last(project, name), wanted, output)


def run(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory, as runs/flux_tiny.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="FILE.html (with FILE.md), or FILE.md.",
            show_default="RUN/report.html",
        ),
    ] = None,
) -> None:
    """What a run was and how it went: identity, curves, throughput, precision, fusions, config.

    One HTML file and the same as Markdown. A file that the run did not write is named as missing.
    """
    from mxtree.report.runs import report_run

    report_run(run, output)


def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN RUN...", help="The first one is the baseline.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE.html",
            help="Write FILE.html, .md, .json, .svg and .png.",
        ),
    ] = None,
    envelope: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="Baseline repeated with another seed; may be repeated."),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Relative difference allowed instead of the envelope.",
            show_default="0.05 and a lag of 5 %, without an envelope",
        ),
    ] = None,
    assert_equal: Annotated[
        bool, typer.Option("--assert-equal", help="Training losses must be equal bit for bit.")
    ] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Judge a run that ended early by what it has.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
) -> int:
    """Loss curves by samples: the envelope of A/A runs, the first divergence, a verdict.

    Runs of the baseline's recipe with another seed make the envelope. Exit status: 0 the same,
    1 diverged, 4 not judged: a run covers only a part of the baseline, or no losses in common.
    """
    from mxtree.report.runs import report_compare

    return report_compare(
        runs,
        output,
        envelope=envelope or (),
        tolerance=tolerance,
        assert_equal=assert_equal,
        partial=partial,
        as_json=as_json,
    )


def mlperf(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directories or log files.")
    ],
    ruleset: Annotated[
        list[str] | None,
        typer.Option(metavar="VERSION", help="Rules to check.", show_default="6.0.0 and 6.1.0"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    tree: Annotated[Path | None, typer.Option(show_default="trees/default")] = None,
    python: Annotated[
        Path | None,
        typer.Option(help="Interpreter with mlperf-logging.", show_default="the tree's"),
    ] = None,
) -> int:
    """Run MLPerf's own compliance and convergence checkers on the logs of runs.

    Exit status: 0 passed, 1 a check failed, 4 there was nothing to check.
    """
    from mxtree.report.runs import report_mlperf

    return report_mlperf(runs, ruleset or (), as_json=as_json, tree=tree, python=python)
