# SPDX-License-Identifier: Apache-2.0
"""Turn the commits of a tree back into its patch series."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree import locks
from mxtree.edit import plan as plans
from mxtree.edit.naming import assign_names
from mxtree.edit.notes import read_notes, write_notes
from mxtree.engine import apply_series
from mxtree.errors import ExitCode, FatalError
from mxtree.git import git, git_text, run_git
from mxtree.series import Patch, load_series
from mxtree.series.canonical import format_range
from mxtree.tree.manifest import load_manifest
from mxtree.tree.records import upstream_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxtree.edit.plan import Plan
    from mxtree.engine import Applied
    from mxtree.project import Project
    from mxtree.tree.manifest import Manifest, UpstreamRecord


@dataclass(frozen=True)
class Export:
    """What the commits of one upstream are as a series, and the canonical commits of that."""

    plan: Plan
    applied: tuple[Applied, ...]


def plan_exports(
    project: Project, tree: Path, names: Sequence[str] = (), *, refresh: bool = False
) -> tuple[Export, ...]:
    """Work out the series of the named upstreams (all by default) of ``tree``; write nothing.

    Raises `FatalError` when a repository holds uncommitted changes or an unfinished rebase, when
    the base is not below its HEAD, or when a commit would not survive the patch format.
    """
    manifest = load_manifest(tree)
    if not manifest.patched:
        raise FatalError(
            f"{tree} was built with --no-patches: its commits are not a series",
            hint="mxtree build --out another/tree, and work there",
        )
    wanted = names or tuple(manifest.upstreams)
    return tuple(
        _export(project, tree, name, manifest.upstreams[name], refresh=refresh) for name in wanted
    )


def write_exports(tree: Path, exports: Sequence[Export]) -> None:
    """Write the series, then move each branch of the tree to the canonical commits.

    The trees of those commits are the ones that were exported; the reflog keeps the user's own.
    Afterwards the tree is again what its manifest says.
    """
    with locks.hold(tree):
        manifest = load_manifest(tree)
        for export in exports:
            plans.write(export.plan)
            manifest = _settle(tree, manifest, export)
        manifest.model_copy(update={"digest": manifest.compute_digest()}).write(tree)


def _export(
    project: Project, tree: Path, name: str, record: UpstreamRecord, *, refresh: bool
) -> Export:
    repository = tree / name
    refuse_unfinished(repository)
    base, head = record.base_commit, git_text("rev-parse", "HEAD", cwd=repository)
    commits = _commits(repository, base, head)
    raw = format_range(repository, base, head) if head != base else ()
    directory = project.series_dir(name, record.version)
    applied = _apply_back(repository, base, raw, commits)
    old = load_series(directory).patches if directory.is_dir() else ()
    recorded = read_notes(repository, tuple(commit.id for commit in commits))
    final = _canonical(repository, base, raw, applied, commits)
    file_names = assign_names(
        [recorded.get(commit.id, ()) for commit in commits],
        [item.patch.subject for item in applied],
        [patch.name for patch in old],
    )
    new = list(zip(file_names, final, strict=True))
    plan = plans.make_plan(name, directory, old, new, refresh=refresh)
    kept = apply_series(repository, base, plan.patches)
    if [item.tree for item in kept] != [item.tree for item in applied]:
        # With its old line numbers a patch would land elsewhere: the context is not unique.
        plan = plans.make_plan(name, directory, old, new, refresh=True)
        kept = apply_series(repository, base, plan.patches)
    return Export(plan, kept)


def refuse_unfinished(repository: Path) -> None:
    """Raise `FatalError` when there are uncommitted changes, or a rebase or am that stopped."""
    for state in ("rebase-merge", "rebase-apply", "CHERRY_PICK_HEAD", "MERGE_HEAD"):
        path = git_text("rev-parse", "--path-format=absolute", "--git-path", state, cwd=repository)
        if Path(path).exists():
            raise FatalError(
                f"{repository}: an operation of git is unfinished ({state})",
                hint=f"git -C {repository} status tells how to finish or abort it",
                code=ExitCode.CHECK_FAILED,
            )
    dirty = git("status", "--porcelain", "-z", cwd=repository).decode("utf-8", "replace")
    if dirty:
        raise FatalError(
            f"{repository} has changes that are in no commit",
            details=[line for line in dirty.split("\0") if line][:20],
            hint=f"git -C {repository} commit (a new patch), commit --amend, or mxtree fold PATCH",
            code=ExitCode.CHECK_FAILED,
        )


@dataclass(frozen=True)
class _Commit:
    id: str
    tree: str
    author: str
    message: bytes


def _commits(repository: Path, base: str, head: str) -> tuple[_Commit, ...]:
    above = run_git("merge-base", "--is-ancestor", base, head, cwd=repository, ok=(0, 1))
    if above.returncode:
        raise FatalError(
            f"{repository}: HEAD is not on top of the upstream release ({base[:12]})",
            hint=f"git -C {repository} rebase {base[:12]}, or mxtree rebase for another release",
            code=ExitCode.CHECK_FAILED,
        )
    fields = "%H%x00%T%x00%an <%ae> %ad%x00%B%x00"
    out = git(
        "log", "--reverse", "--date=raw", f"--format={fields}", f"{base}..{head}", cwd=repository
    )
    parts = out.split(b"\0")[:-1]
    rows = zip(*(parts[start::4] for start in range(4)), strict=True)
    return tuple(
        _Commit(i.decode().strip(), t.decode(), a.decode("utf-8", "replace"), m.rstrip(b"\n"))
        for i, t, a, m in rows
    )


def _apply_back(
    repository: Path, base: str, raw: Sequence[bytes], commits: Sequence[_Commit]
) -> tuple[Applied, ...]:
    """Apply what was formatted and compare: the proof that nothing is lost in a patch file."""
    patches = [
        Patch(repository / commit.id, "0000", commit.id[:12], data)
        for commit, data in zip(commits, raw, strict=True)
    ]
    applied = apply_series(repository, base, patches)
    for commit, made in zip(commits, applied, strict=True):
        if made.tree != commit.tree:
            _refuse(repository, commit, f"its patch gives tree {made.tree[:12]}, not its own")
    return applied


def _refuse(repository: Path, commit: _Commit, reason: str) -> None:
    raise FatalError(
        f"commit {commit.id[:12]} ({_subject(commit)}) does not survive the patch format: {reason}",
        hint=f"git -C {repository} rebase -i {commit.id[:12]}^ and change that commit",
        code=ExitCode.CHECK_FAILED,
    )


def _subject(commit: _Commit) -> str:
    return commit.message.partition(b"\n")[0].decode("utf-8", "replace")


def _canonical(
    repository: Path,
    base: str,
    raw: tuple[bytes, ...],
    applied: tuple[Applied, ...],
    commits: Sequence[_Commit],
) -> tuple[bytes, ...]:
    """Return the bytes that come out again unchanged when they are applied and exported.

    `git am` drops trailing white space and runs of blank lines in a message, so a message that
    has them is formatted once more from the commit that it became.
    """
    if not applied:
        return raw
    made = _commits(repository, base, applied[-1].commit)
    if all(a.message == b.message for a, b in zip(commits, made, strict=True)):
        return raw
    for commit, other in zip(commits, made, strict=True):
        if commit.message.split() != other.message.split():
            _refuse(repository, commit, "git would cut or misread its message (see mxtree lint)")
    return format_range(repository, base, applied[-1].commit)


def _settle(tree: Path, manifest: Manifest, export: Export) -> Manifest:
    name = export.plan.upstream
    repository = tree / name
    settled = upstream_record(manifest.upstreams[name], export.applied)
    message = "mxtree export: canonical commits"
    git("update-ref", "-m", message, "HEAD", settled.head_commit, cwd=repository)
    write_notes(repository, {item.commit: item.patch.name for item in export.applied})
    return manifest.model_copy(update={"upstreams": {**manifest.upstreams, name: settled}})
