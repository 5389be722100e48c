# SPDX-License-Identifier: Apache-2.0
"""Bring upstream's commits between the bases into the work tree: they date what upstream did."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree.cache import is_offline
from mxtree.git import git, git_text, run_git
from mxtree.upstreams.transport import transport_env

if TYPE_CHECKING:
    from mxtree.rebase.work import Work


def add_history(work: Work, place: str, commits: tuple[str, ...]) -> None:
    """Give ``work`` the history of ``commits`` from a git repository, as far as it can be had.

    A local repository is borrowed from (its objects become an alternate). A URL is fetched from,
    which takes a while for a big repository. A partial clone has too little to compare commits
    with, and offline there is none: then upstream's commits are not named, only the new base.
    """
    path = Path(place)
    if path.is_absolute():
        _borrow(work, path)
    elif not is_offline():
        print(f"fetching the history between the bases from {place}", file=sys.stderr)
        unshallow = ("--unshallow",) if _shallow(work).exists() else ()
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", *unshallow)
        git("fetch", *options, "--", place, *commits, cwd=work.path, env=transport_env())


def _borrow(work: Work, path: Path) -> None:
    partial = run_git("config", "--get-regexp", r"^remote\..*\.promisor$", cwd=path, ok=(0, 1))
    if partial.stdout:
        return
    options = ("rev-parse", "--path-format=absolute", "--git-path", "objects")
    objects = git_text(*options, cwd=path)
    alternates = work.path / ".git" / "objects" / "info" / "alternates"
    alternates.parent.mkdir(exist_ok=True)
    with alternates.open("a", encoding="utf-8") as file:
        file.write(f"{objects}\n")
    theirs = Path(
        git_text("rev-parse", "--path-format=absolute", "--git-path", "shallow", cwd=path)
    )
    shallow = theirs.read_text(encoding="ascii") if theirs.exists() else ""
    # The imports are cut at the bases; what the other repository has reaches further.
    if shallow:
        _shallow(work).write_text(shallow, encoding="ascii")
    else:
        _shallow(work).unlink(missing_ok=True)


def _shallow(work: Work) -> Path:
    return work.path / ".git" / "shallow"
