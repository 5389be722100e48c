# SPDX-License-Identifier: Apache-2.0
"""One pass over patches/."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.lint.changes import check_changes, shared_symbols
from mxtree.lint.form import check_form
from mxtree.lint.header import check_fields
from mxtree.lint.layout import find_series
from mxtree.lint.model import Report, SeriesAt
from mxtree.lint.proofs import check_proofs
from mxtree.lint.sources import check_against, find_base
from mxtree.series import Problem
from mxtree.series.load import read_series

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.project import Project
    from mxtree.upstreams import Upstreams


def lint(project: Project) -> Report:
    """Check every series of the project and return everything that was found.

    Diffs and symbols are compared with the upstream release when the cache has it; a note says
    when it has not. Nothing is fetched or written but objects in the cache.
    """
    report = Report(project.root)
    upstreams, folders, problems = find_series(project)
    report.problems += problems
    for upstream, version, folder in folders:
        series, wrong = read_series(folder)
        report.problems += wrong
        found = SeriesAt(upstream, version, series)
        report.series += 1
        report.patches += len(series.patches)
        broken = {problem.path for problem in wrong}
        _check_patches(project, found, broken, report)
        if upstreams is not None:
            _check_sources(upstreams, found, broken_series=bool(wrong), report=report)
    report.problems = sorted(set(report.problems))
    return report


def _check_patches(project: Project, found: SeriesAt, broken: set[Path], report: Report) -> None:
    whole = [patch for patch in found.series.patches if patch.path not in broken]
    report.problems += check_form(whole)
    for patch in whole:
        report.problems += check_fields(patch)
        report.problems += check_changes(patch)
        report.problems += check_proofs(patch, project.root)
    report.notes += shared_symbols(found)


def _check_sources(
    upstreams: Upstreams, found: SeriesAt, *, broken_series: bool, report: Report
) -> None:
    folder, name = found.series.directory, f"{found.upstream}@{found.version}"
    if broken_series or any(problem.path == folder for problem in report.problems):
        message = "its patches were not tried on the release: correct the problems above first"
        report.notes.append(Problem(folder, 0, message, "mxtree lint", "source-skipped"))
        return
    base = find_base(upstreams, found)
    if base is None:
        message = "diffs and symbols were not compared with the release: the cache lacks it"
        report.notes.append(Problem(folder, 0, message, f"mxtree fetch {name}", "source-missing"))
        return
    seen = {(problem.path, problem.rule) for problem in report.problems}
    for problem in check_against(base, found):
        # One difference in the head or the diff of a patch is also one of its bytes.
        already = problem.rule == "form-bytes" and any(
            path == problem.path and rule.startswith(("form-", "message-")) for path, rule in seen
        )
        if not already:
            report.problems.append(problem)
