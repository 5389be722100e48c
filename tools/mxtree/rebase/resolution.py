# SPDX-License-Identifier: Apache-2.0
"""Take over what the user made of a conflict, and nothing else."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from mxtree.errors import ExitCode, FatalError
from mxtree.git import shell_git
from mxtree.series import Patch
from mxtree.series.canonical import format_range

if TYPE_CHECKING:
    from mxtree.rebase.model import Rebase
    from mxtree.rebase.work import Work

_MARKER = re.compile(rb"^(?:<{7} |>{7} |\|{7} |={7}$)", re.MULTILINE)


def commit_resolution(work: Work, rebase: Rebase) -> str:
    """Return the commit of the resolved patch: the user's, or one made from the staged files.

    Author and message are those of the patch. Raises `FatalError` when paths are unmerged, conflict
    markers remain, changes are not staged, nothing is left, or other commits appeared.
    """
    head = work.head
    if head == rebase.tip:
        _refuse_unready(work, rebase)
        _refuse_empty(work, rebase, work.git("write-tree").decode().strip())
        work.commit_as(rebase.current.old_commit)
        return work.head
    _refuse_strangers(work, rebase.upstream, head, below=rebase.tip)
    _refuse_unready(work, rebase)
    _refuse_uncommitted(work, rebase)
    _refuse_empty(work, rebase, work.tree_of(head))
    refuse_lost_message(work, head)
    return head


def amended_tip(work: Work, rebase: Rebase) -> str:
    """Return HEAD when it is the tip, or the tip amended; raises `FatalError` otherwise."""
    head = work.head
    if head != rebase.tip:
        _refuse_strangers(
            work, rebase.upstream, head, below=work.text("rev-parse", f"{rebase.tip}^")
        )
        refuse_lost_message(work, head)
    _refuse_unready(work, rebase)
    _refuse_uncommitted(work, rebase)
    return head


def _refuse_strangers(work: Work, upstream: str, head: str, *, below: str) -> None:
    if work.text("rev-parse", "-q", "--verify", f"{head}^") == below:
        return
    log = work.git("log", "--oneline", "-5").decode("utf-8", "replace").splitlines()
    raise FatalError(
        f"{work.path} has commits that this rebase did not make; HEAD should be one commit on "
        f"top of {below[:12]}",
        details=log,
        hint=f"{shell_git(work.path)} reset --soft {below[:12]} makes them one change to commit; "
        f"then mxtree rebase {upstream} --continue",
        code=ExitCode.CHECK_FAILED,
    )


def _refuse_unready(work: Work, rebase: Rebase) -> None:
    again = (
        f"edit them, {shell_git(work.path)} add the files, "
        f"then mxtree rebase {rebase.upstream} --continue"
    )
    unmerged = work.unmerged()
    if unmerged:
        _refuse(f"{len(unmerged)} paths are unmerged", unmerged, again)
    unstaged = work.git("diff", "--name-only", "-z").decode("utf-8", "replace").split("\0")[:-1]
    if unstaged:
        _refuse(
            "changes are not staged", unstaged, f"{shell_git(work.path)} add them, or restore them"
        )
    marked = _with_markers(work, rebase)
    if marked:
        _refuse("conflict markers remain", marked, again)


def _refuse_uncommitted(work: Work, rebase: Rebase) -> None:
    """Refuse what is staged on top of HEAD: going on would throw it away."""
    staged = work.git("diff", "--cached", "--name-only", "-z", "HEAD")
    paths = staged.decode("utf-8", "replace").split("\0")[:-1]
    if paths:
        again = f"then mxtree rebase {rebase.upstream} --continue"
        amend = f"{shell_git(work.path)} commit --amend --no-edit, {again}"
        _refuse("changes are staged and in no commit", paths, amend)


def refuse_lost_message(work: Work, commit: str) -> None:
    """Raise `FatalError` when a patch file would cut or misread the message of ``commit``."""
    raw = format_range(work.path, f"{commit}^", commit)[0]
    patch = Patch(work.path, "0000", commit[:12], raw)
    wanted = work.git("log", "-1", "--format=%B", "--encoding=UTF-8", commit)
    if patch.message.encode().split() != wanted.split():
        raise FatalError(
            f"a patch file would cut or misread the message of {commit[:12]}",
            details=["lines like `---`, `diff -`, `Index:` or a first line `From:` end it early"],
            hint=f"{shell_git(work.path)} commit --amend, and word it otherwise",
            code=ExitCode.CONFLICT,
        )


def _refuse(what: str, paths: list[str], hint: str) -> None:
    raise FatalError(what, details=paths[:20], hint=hint, code=ExitCode.CONFLICT)


def _with_markers(work: Work, rebase: Rebase) -> list[str]:
    """Return the changed files that hold conflict markers which were not there before."""
    found = []
    names = work.git("diff", "--cached", "--name-only", "--diff-filter=AMR", "-z", rebase.tip)
    for name in names.split(b"\0")[:-1]:
        path = os.fsdecode(name)
        now = work.git("cat-file", "blob", f":0:{path}")
        lines = {match[0] for match in _MARKER.finditer(now)}
        # A row of "=" underlines headings; only with an arrow beside it is it a marker.
        if any(line.startswith((b"<", b">")) for line in lines) and not _had(work, rebase, path):
            number = now[: next(_MARKER.finditer(now)).start()].count(b"\n") + 1
            found.append(f"{name.decode('utf-8', 'replace')}:{number}")
    return found


def _had(work: Work, rebase: Rebase, path: str) -> bool:
    """Return whether the patch itself (or the file before it) has such lines."""
    step = rebase.steps[min(rebase.position, len(rebase.steps) - 1)]
    for commit in (rebase.tip, step.old_commit):
        listing = work.git("ls-tree", commit, "--", path)
        if listing and _MARKER.search(work.git("cat-file", "blob", f"{commit}:{path}")):
            return True
    return False


def _refuse_empty(work: Work, rebase: Rebase, tree: str) -> None:
    if tree == work.tree_of(rebase.tip):
        raise FatalError(
            f"nothing is left of patch {rebase.current.name}",
            hint=f"if upstream has it, or it is not needed: mxtree rebase {rebase.upstream} "
            '--skip --reason "..."',
            code=ExitCode.CONFLICT,
        )
