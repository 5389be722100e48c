# SPDX-License-Identifier: Apache-2.0
"""Walk the series: each patch onto the new base, until the end or a conflict.

A patch whose files are the same on both sides gives the same files again, so runs of such patches
are applied in memory. Everything else is a real 3-way merge by `git cherry-pick`, in as few
processes as possible: the outcome is that of `git rebase --onto`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.engine import Fit, apply_prefix
from mxtree.errors import ExitCode, FatalError
from mxtree.rebase.model import Outcome
from mxtree.rebase.upstreamed import Upstreamed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mxtree.git import GitResult
    from mxtree.rebase.model import Rebase, Step
    from mxtree.rebase.work import Work
    from mxtree.series import Patch

#: A run of at least so many untroubled patches pays for the processes of an in-memory apply.
_WORTH_IT = 8


class Walk:
    """One pass over the patches that wait.

    ``patches`` are the old series in canonical bytes, ``save`` is called after every state change.
    With ``forecast`` a conflict is recorded and left out, and the walk goes on. ``after`` is asked
    after each kept patch whether to go on.
    """

    def __init__(
        self,
        work: Work,
        patches: Sequence[Patch],
        save: Callable[[Rebase], None],
        *,
        forecast: bool = False,
        after: Callable[[Work, Rebase, Step], bool] | None = None,
    ) -> None:
        self._work = work
        self._patches = patches
        self._save = save
        self._forecast = forecast
        self._after = after

    def run(self, rebase: Rebase) -> Rebase:
        """Carry patches until none waits or one conflicts; return the new state."""
        touched = self._work.touched([step.old_commit for step in rebase.steps])
        upstreamed = Upstreamed(self._work, rebase, touched)
        while rebase.position < len(rebase.steps) and rebase.status == "running":
            start, stop, is_easy = self._next_run(rebase, touched)
            if rebase.exec_command is not None:
                stop = start + 1
            if is_easy:
                rebase = self._in_memory(rebase, start, stop, upstreamed)
            else:
                rebase = self._merge(rebase, start, stop, upstreamed)
            if rebase.position == start and rebase.status == "running":
                raise _stuck(rebase)
            rebase = self._checked(rebase, start)
            self._save(rebase)
        if rebase.status == "running":
            rebase = rebase.model_copy(update={"status": "done"})
            self._save(rebase)
        return rebase

    def _checked(self, rebase: Rebase, index: int) -> Rebase:
        """Ask ``after`` about the patch that was carried last."""
        step = rebase.steps[index]
        if self._after is None or step.new_commit is None or self._after(self._work, rebase, step):
            return rebase
        return rebase.model_copy(update={"status": "exec-failed"})

    def _next_run(
        self, rebase: Rebase, touched: Sequence[frozenset[bytes]]
    ) -> tuple[int, int, bool]:
        """Return the next run of patches, and whether both sides have the same files for it."""
        start = rebase.position
        before = f"{rebase.steps[start].old_commit}^"
        dirty = self._work.differing(before, rebase.tip)
        easy = [not (paths & dirty) for paths in touched[start:]]
        length = _leading(easy)
        if length >= _WORTH_IT or length == len(easy):
            return start, start + length, True
        # Short easy stretches between merges are cheaper left to the merging process.
        stop = start
        while stop < len(rebase.steps):
            run = _leading(easy[stop - start :])
            if run >= _WORTH_IT:
                break
            stop += max(run, 1)
        return start, min(stop, len(rebase.steps)), False

    def _in_memory(self, rebase: Rebase, start: int, stop: int, upstreamed: Upstreamed) -> Rebase:
        patches = self._patches[start:stop]
        applied, _ = apply_prefix(self._work.path, rebase.tip, patches)
        exact = _leading([item.fit in {Fit.EXACT, Fit.GIT} for item in applied])
        for offset, item in enumerate(applied[:exact]):
            rebase = self._kept(rebase, start + offset, item.commit)
        if exact < len(patches):
            # Equal files, and still no exact fit: a file where a folder is, say. Git decides.
            rebase = self._merge(rebase, start + exact, start + exact + 1, upstreamed)
        return rebase

    def _merge(self, rebase: Rebase, start: int, stop: int, upstreamed: Upstreamed) -> Rebase:
        work = self._work
        work.move_to(rebase.tip)
        result = work.pick([step.old_commit for step in rebase.steps[start:stop]])
        made = work.log_trees(rebase.tip, "HEAD")
        before = work.tree_of(rebase.tip)
        for offset, (commit, tree) in enumerate(made):
            rebase = self._picked(rebase, start + offset, commit, upstreamed, empty=tree == before)
            before = tree
        if result.returncode == 0:
            return rebase
        if not work.unmerged():
            self._refuse_unmerged_failure(rebase, result)
        return self._stopped(rebase, start + len(made), upstreamed)

    def _refuse_unmerged_failure(self, rebase: Rebase, result: GitResult) -> None:
        """Tell a pick that git could not even try from one that conflicts."""
        status = self._work.git("status", "--porcelain", "-z", "--untracked-files=all")
        rows = status.decode("utf-8", "replace").split("\0")[:-1]
        if any(not row.startswith("?? ") for row in rows):
            return
        said = result.stderr.decode("utf-8", "replace").splitlines()
        in_the_way = [row[3:] for row in rows if f"\t{row[3:]}" in said]
        if in_the_way:
            raise FatalError(
                f"untracked files are in the way of patch {rebase.current.name}",
                details=in_the_way,
                hint=f"move them out of {self._work.path}, then "
                f"mxtree rebase {rebase.upstream} --continue",
                code=ExitCode.CHECK_FAILED,
            )
        raise FatalError(f"git could not pick patch {rebase.current.name}", details=said[:10])

    def _picked(
        self, rebase: Rebase, index: int, commit: str, upstreamed: Upstreamed, *, empty: bool
    ) -> Rebase:
        """Decide what a clean merge means: kept, or nothing left because upstream has it."""
        if not empty or upstreamed.was_empty(index):
            return self._kept(rebase, index, commit)
        evidence = upstreamed.after_empty_merge(index, self._patches[index].raw)
        rebase = rebase.with_step(index, outcome=Outcome.MERGED, evidence=evidence)
        # The empty commit stays below the later ones here; the new series leaves it out.
        return rebase.model_copy(update={"tip": commit})

    def _kept(self, rebase: Rebase, index: int, commit: str) -> Rebase:
        # Which of the kept classes it is shows only in the new patch; see `classify`.
        rebase = rebase.with_step(index, outcome=Outcome.UNTOUCHED, new_commit=commit)
        return rebase.model_copy(update={"tip": commit})

    def _stopped(self, rebase: Rebase, index: int, upstreamed: Upstreamed) -> Rebase:
        unmerged = self._work.unmerged()
        evidence = upstreamed.after_conflict(index, self._patches[index].raw)
        if evidence:
            return rebase.with_step(index, outcome=Outcome.MERGED, evidence=evidence)
        held = upstreamed.held_between(self._patches[index].raw)
        if self._forecast:
            files = ", ".join(unmerged) or "its files"
            told = f"in {files}{f'; {held}' * bool(held)}"
            return rebase.with_step(index, outcome=Outcome.CONFLICT, evidence=told)
        # The proofs above used the work tree: bring the conflict back for the user.
        self._work.move_to(rebase.tip)
        replayed = self._work.pick_again(rebase.steps[index].old_commit)
        self._work.offer_message(rebase.steps[index].old_commit)
        rebase = rebase.with_step(index, evidence=held, replayed=tuple(replayed))
        return rebase.model_copy(update={"status": "conflict"})


def _stuck(rebase: Rebase) -> FatalError:
    return FatalError(
        f"patch {rebase.current.name} neither went on nor stopped",
        hint="this is a defect of mxtree; nothing in the project was changed",
        code=ExitCode.COULD_NOT_CHECK,
    )


def _leading(flags: Sequence[bool]) -> int:
    return next((i for i, flag in enumerate(flags) if not flag), len(flags))
