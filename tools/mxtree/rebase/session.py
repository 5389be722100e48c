# SPDX-License-Identifier: Apache-2.0
"""Start, continue, skip, abort: the verbs of a rebase, each safe to be killed in."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxtree import locks
from mxtree.engine import apply_series
from mxtree.errors import ExitCode, FatalError
from mxtree.git import shell_git
from mxtree.rebase import bases
from mxtree.rebase.classify import classify, new_patches
from mxtree.rebase.commands import run_exec
from mxtree.rebase.history import add_history
from mxtree.rebase.model import Outcome, Rebase, Step
from mxtree.rebase.resolution import amended_tip, commit_resolution
from mxtree.rebase.store import Store, directory_digest
from mxtree.rebase.walk import Walk
from mxtree.rebase.work import Work
from mxtree.series import Patch, load_series
from mxtree.series.canonical import format_range

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.project import Project
    from mxtree.upstreams import Imported, Upstream


@dataclass(frozen=True)
class Request:
    """What to carry where; see `mxtree rebase --help`."""

    upstream: Upstream
    old: Imported
    new: Imported
    between: tuple[Imported, ...] = ()
    exec_command: str | None = None
    keep_pin: bool = False
    #: Where the history between the bases is: a URL or an absolute path of a git repository.
    history: str | None = None


class Session:
    """The rebase of one upstream of a project."""

    def __init__(self, project: Project, upstream: str) -> None:
        self.project = project
        self.store = Store.of(project, upstream)

    def start(self, request: Request) -> Rebase:
        """Begin a rebase and carry patches until the end or the first conflict.

        Raises `FatalError` when one is open already, when there is a series for the new base, or
        when the series does not apply to its own base.
        """
        with locks.hold(self.store.folder):
            if self.store.is_open():
                raise FatalError(
                    f"a rebase of {self.store.upstream} is open ({self.store.folder})",
                    hint=f"mxtree rebase {self.store.upstream} --continue, or --abort",
                )
            self._refuse_existing(request.new.version)
            folder = self.store.folder.with_name(f".{self.store.upstream}.new")
            aside = Store(folder, self.store.upstream)
            aside.clear()
            try:
                rebase = prepare(self.project, aside.work, request)
                Work(aside.work).share_resolutions(self.store.resolutions)
                aside.save(rebase)
                folder.rename(self.store.folder)
            except BaseException:
                # What is half made is of no use, and on a full disk it is in the way.
                aside.clear()
                raise
            return self._walk(rebase)

    def _refuse_existing(self, version: str) -> None:
        """Refuse now what --finish could not write, when conflicts have been resolved for it."""
        target = self.project.series_dir(self.store.upstream, version)
        if target.exists():
            raise FatalError(
                f"{target} exists already",
                hint=f"to carry the series there again: {shell_git(self.project.root)} rm -r "
                f"{shlex.quote(str(target))} "
                "first; the commit before has it for comparison",
            )

    def resume(self) -> Rebase:
        """Take the user's resolution of the current patch, and go on.

        Also goes on after a kill. Raises `FatalError` while conflict markers or unmerged paths
        remain, and when the work tree or the old series was changed behind the rebase's back.
        """
        with locks.hold(self.store.folder):
            rebase = self.load()
            if rebase.status == "conflict":
                commit = commit_resolution(self._work, rebase)
                again = ", ".join(rebase.current.replayed)
                rebase = rebase.with_step(
                    rebase.position,
                    outcome=Outcome.RESOLVED,
                    new_commit=commit,
                    evidence=f"a resolution from before was offered in {again}" if again else "",
                ).model_copy(update={"tip": commit, "status": "running"})
                rebase = self._commanded(rebase)
                self.store.save(rebase)
                if rebase.status == "exec-failed":
                    return rebase
            elif rebase.status == "exec-failed":
                rebase = self._after_exec(rebase)
            return self._walk(rebase)

    def _commanded(self, rebase: Rebase) -> Rebase:
        """Run the command of --exec after a resolved patch, before the state says resolved."""
        if run_exec(self._work, rebase, rebase.steps[rebase.position - 1]):
            return rebase
        return rebase.model_copy(update={"status": "exec-failed"})

    def _after_exec(self, rebase: Rebase) -> Rebase:
        """Take over what the user amended after the command failed."""
        last = rebase.position - 1
        amended = amended_tip(self._work, rebase)
        if amended != rebase.tip:
            rebase = rebase.with_step(last, outcome=Outcome.RESOLVED, new_commit=amended)
        return rebase.model_copy(update={"tip": amended, "status": "running"})

    def skip(self, reason: str) -> Rebase:
        """Leave the current patch out, for a reason, and go on."""
        if not reason.strip():
            raise FatalError(
                "a patch is dropped only for a reason",
                hint='mxtree rebase ... --skip --reason "upstream solved it in another way"',
            )
        with locks.hold(self.store.folder):
            rebase = self.load()
            if rebase.status != "conflict":
                raise FatalError(
                    f"no patch of {self.store.upstream} waits for a decision ({rebase.status})",
                    hint=f"mxtree rebase {self.store.upstream} --continue",
                )
            self._work.move_to(rebase.tip)
            rebase = rebase.with_step(
                rebase.position, outcome=Outcome.DROPPED, evidence=reason.strip()
            ).model_copy(update={"status": "running"})
            self.store.save(rebase)
            return self._walk(rebase)

    def abort(self) -> None:
        """Forget the rebase, whatever state it is in; series and pins are as they were."""
        with locks.hold(self.store.folder):
            if not self.store.is_open():
                self.store.load()
            self.store.clear()

    @property
    def _work(self) -> Work:
        return Work(self.store.work)

    def load(self) -> Rebase:
        """Return the open rebase. Raises `FatalError` when there is none or its series changed."""
        rebase = self.store.load()
        directory = self.project.series_dir(rebase.upstream, rebase.old.version)
        if not directory.is_dir() or directory_digest(directory) != rebase.series:
            raise FatalError(
                f"{directory} was changed since the rebase began",
                hint=f"undo the change (git checkout -- {shlex.quote(str(directory))}), "
                f"or start again: mxtree rebase {rebase.upstream} --abort",
                code=ExitCode.CHECK_FAILED,
            )
        return rebase

    def _walk(self, rebase: Rebase) -> Rebase:
        old = canonical_series(self._work.path, rebase)
        rebase = Walk(self._work, old, self.store.save, after=run_exec).run(rebase)
        if rebase.status == "done":
            rebase = classify(rebase, old, new_patches(self._work, rebase))
            self.store.save(rebase)
        return rebase


def prepare(project: Project, work: Path, request: Request) -> Rebase:
    """Make the work tree and the state of a rebase that has not carried anything yet."""
    directory = project.series_dir(request.upstream.name, request.old.version)
    digest = directory_digest(directory) if directory.is_dir() else ""
    series = load_series(directory).patches
    everything = (request.old, request.new, *request.between)
    made = Work.create(work, [item.repo for item in everything], request.new.commit)
    if request.history is not None:
        add_history(made, request.history, (request.old.commit, request.new.commit))
    applied = apply_series(work, request.old.commit, series)
    return Rebase(
        upstream=request.upstream.name,
        old=bases.end_of(request.old),
        new=bases.end_of(request.new),
        between=tuple(bases.end_of(item) for item in request.between),
        series=digest,
        steps=tuple(
            Step(name=item.patch.name, title=item.patch.subject, old_commit=item.commit)
            for item in applied
        ),
        tip=request.new.commit,
        exec_command=request.exec_command,
        keep_pin=request.keep_pin,
    )


def canonical_series(work: Path, rebase: Rebase) -> tuple[Patch, ...]:
    """Return the old series in canonical bytes: what classes are judged against."""
    if not rebase.steps:
        return ()
    raw = format_range(work, rebase.old.commit, rebase.steps[-1].old_commit)
    return tuple(
        Patch(work / step.name, step.name[:4], step.name, data)
        for step, data in zip(rebase.steps, raw, strict=True)
    )
