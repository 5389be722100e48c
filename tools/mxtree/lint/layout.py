# SPDX-License-Identifier: Apache-2.0
"""The folders of patches/: one an upstream, one a version in it, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.errors import FatalError
from mxtree.series import Problem
from mxtree.upstreams import load_upstreams

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mxtree.project import Project
    from mxtree.upstreams import Upstreams

    Found = tuple[str, str, Path]


def find_series(
    project: Project,
) -> tuple[Upstreams | None, list[Found], list[Problem]]:
    """Return the pins (None when unreadable), (upstream, version, folder) each, and problems."""
    problems: list[Problem] = []
    upstreams = None
    try:
        upstreams = load_upstreams(project)
    except FatalError as error:
        lines = error.details or (error.message,)
        fix = error.hint or "correct the file"
        problems += [Problem(project.upstreams_file, 0, line, fix, "upstreams") for line in lines]
    found: list[Found] = []
    for upstream in _folders(project.patches, {project.upstreams_file.name}, problems):
        for version in _folders(upstream, set(), problems):
            found.append((upstream.name, version.name, version))
            problems += _unknown(upstreams, upstream.name, version)
    return upstreams, found, problems


def _folders(folder: Path, known: set[str], problems: list[Problem]) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            yield path
        elif path.name not in known:
            fix = "delete or move it: patches lie in patches/<upstream>/<version>/"
            problems.append(Problem(path, 0, "does not belong here", fix, "layout-stray"))


def _unknown(upstreams: Upstreams | None, name: str, folder: Path) -> Iterator[Problem]:
    if upstreams is None:
        return
    try:
        upstreams.get(name).release(folder.name)
    except FatalError as error:
        fix = error.hint or "pin the release in upstreams.toml, or rename the folder"
        yield Problem(folder, 0, error.message, fix, "layout-unknown")
