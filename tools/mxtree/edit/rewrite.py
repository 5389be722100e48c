# SPDX-License-Identifier: Apache-2.0
"""Start a patch, stop at one, fold changes into one: git's own rebase, with the names kept."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree.edit import todo
from mxtree.edit.export import changes, record_of, refuse_unfinished
from mxtree.edit.identity import author_env
from mxtree.edit.locate import Located, locate, patches_of
from mxtree.edit.naming import names_in_all_versions, next_id, slug
from mxtree.edit.notes import NOTES_REF
from mxtree.errors import ExitCode, FatalError
from mxtree.git import git, git_text, run_git, shell_git
from mxtree.series.fields import REQUIRED
from mxtree.tree.manifest import load_manifest
from mxtree.tree.repository import ignore_by_products

if TYPE_CHECKING:
    from mxtree.project import Project


def new_patch(project: Project, tree: Path, upstream: str, subject: str) -> Located:
    """Commit the changes in the work tree of ``upstream`` as a new patch at the end of the series.

    The message has every header field, empty, for `git commit --amend` to fill in. Raises
    `FatalError` when there is nothing to commit.
    """
    record = record_of(tree, load_manifest(tree), upstream)
    repository = tree / upstream
    _refuse_without_changes(repository, "make the change first, then `mxtree new` names it")
    series_dir = project.series_dir(upstream, record.version)
    taken = [item.name for item in patches_of(tree) if item.upstream == upstream]
    taken += names_in_all_versions(series_dir)
    name = f"{next_id(taken)}-{slug(subject)}.patch"
    message = "\n".join([subject, "", *(f"{field}:" for field in REQUIRED), ""])
    ignore_by_products(repository)
    git("add", "--all", cwd=repository)
    env = author_env(repository)
    git("commit", "--quiet", "--file=-", cwd=repository, stdin=message.encode(), env=env)
    commit = git_text("rev-parse", "HEAD", cwd=repository)
    git("notes", f"--ref={NOTES_REF}", "add", "-m", name, commit, cwd=repository)
    return Located(upstream, name, repository, commit)


def edit_patch(tree: Path, wanted: str) -> Located:
    """Stop the repository at a patch, as ``git rebase -i`` does with ``edit``."""
    patch = locate(tree, wanted)
    refuse_unfinished(patch.repository)
    editor = shlex.join([sys.executable, str(Path(todo.__file__).absolute())])
    run_git(
        "rebase",
        "--interactive",
        "--quiet",
        f"{patch.commit}^",
        cwd=patch.repository,
        env={"GIT_SEQUENCE_EDITOR": editor},
    )
    return patch


def fold(tree: Path, wanted: str) -> Located:
    """Fold the changes in the work tree into a patch and replay the later ones on top.

    Raises `FatalError` when there are none, or when a later patch no longer applies; then the
    repository is in the middle of a rebase and the error says how to go on or back.
    """
    patch = locate(tree, wanted)
    repository = patch.repository
    _refuse_without_changes(repository, f"change files in {repository} first")
    before = git_text("rev-parse", "HEAD", cwd=repository)
    ignore_by_products(repository)
    git("add", "--all", cwd=repository)
    env = author_env(repository)
    git("commit", "--quiet", f"--fixup={patch.commit}", cwd=repository, env=env)
    git_here = shell_git(repository)
    result = run_git(
        *("rebase", "--interactive", "--autosquash", "--quiet", f"{patch.commit}^"),
        cwd=repository,
        env={"GIT_SEQUENCE_EDITOR": "true"},
        ok=range(256),
    )
    if result.returncode:
        raise FatalError(
            f"{repository}: a patch after {patch.name} no longer applies",
            details=result.stderr.decode("utf-8", "replace").splitlines()[:15],
            hint=f"resolve it, then {git_here} add and {git_here} rebase --continue; "
            f"or go back: {git_here} rebase --abort && {git_here} reset --mixed {before[:12]}",
            code=ExitCode.CONFLICT,
        )
    return patch


def _refuse_without_changes(repository: Path, hint: str) -> None:
    if not changes(repository):
        raise FatalError(f"{repository} has no changes", hint=hint)
