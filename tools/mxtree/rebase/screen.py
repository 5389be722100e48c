# SPDX-License-Identifier: Apache-2.0
"""The conflict screen: patch, file, hunk, who changed those lines upstream, what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.engine import apply_prefix
from mxtree.errors import ExitCode, FatalError
from mxtree.git import shell_git
from mxtree.rebase.commands import changed_by_exec
from mxtree.rebase.culprits import culprits
from mxtree.rebase.hunks import old_spans
from mxtree.rebase.work import shown

if TYPE_CHECKING:
    from mxtree.rebase.model import Rebase
    from mxtree.rebase.work import Work
    from mxtree.series import Patch

_HUNKS_SHOWN = 6


def conflict_screen(work: Work, rebase: Rebase, patch: Patch) -> FatalError:
    """Return the error that tells the user everything about the conflict at hand."""
    unmerged = work.unmerged_files()
    details = [f"in {shown(path)}{_gone(work, rebase, path)}" for path in unmerged]
    details += [
        f"in {path} is what was made of the same conflict before: look at it, then add it"
        for path in rebase.current.replayed
    ]
    details += [rebase.current.evidence] if rebase.current.evidence else []
    details += _strict(work, rebase, patch)
    for path, span in list(old_spans(patch, context=0))[:_HUNKS_SHOWN]:
        if path in unmerged or not unmerged:
            named = culprits(work, rebase, path, span)
            details += [
                f"{shown(path)}:{span.first}-{span.last} was changed upstream by {n}" for n in named
            ]
    verb = f"mxtree rebase {rebase.upstream}"
    return FatalError(
        f"conflict in patch {rebase.current.name} ({rebase.current.title}), "
        f"{rebase.position + 1} of {len(rebase.steps)}",
        details=details,
        hint=f"edit the files in {work.path}, {shell_git(work.path)} add them, then\n"
        f"  {verb} --continue\n"
        f'or leave the patch out: {verb} --skip --reason "..."\n'
        f"or give up, all as before: {verb} --abort",
        code=ExitCode.CONFLICT,
    )


def exec_screen(work: Work, rebase: Rebase) -> FatalError:
    """Return the error of a ``--exec`` command that failed."""
    step = rebase.steps[rebase.position - 1]
    changed = changed_by_exec(work, rebase)
    what = "failed or changed files" if changed else "failed"
    undo = f"{shell_git(work.path)} reset --hard {rebase.tip[:12]}"
    return FatalError(
        f"the command of --exec {what} after patch {step.name}: {rebase.exec_command}",
        details=changed[:20],
        hint=f"change the patch in {work.path} (git commit --amend) or leave it as it is"
        f"{f' ({undo})' if changed else ''}, then mxtree rebase {rebase.upstream} --continue",
        code=ExitCode.CHECK_FAILED,
    )


def _gone(work: Work, rebase: Rebase, path: str) -> str:
    if work.has(rebase.tip, path):
        return ""
    return ": upstream has no such file; git rm it, and make the change where its code is now"


def _strict(work: Work, rebase: Rebase, patch: Patch) -> list[str]:
    conflict = apply_prefix(work.path, rebase.tip, [patch])[1]
    return [conflict.message, *conflict.details] if conflict else []
