# SPDX-License-Identifier: Apache-2.0
"""Turn the commits of a tree back into its patch series."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree import locks
from mxtree.edit import plan as plans
from mxtree.edit.naming import assign_names, names_in_all_versions
from mxtree.edit.notes import read_notes, write_notes
from mxtree.engine import Applied, Fit, apply_series
from mxtree.errors import ExitCode, FatalError
from mxtree.git import git, git_text, run_git, shell_git
from mxtree.series import Patch, load_series
from mxtree.series.canonical import format_range
from mxtree.tree.files import is_ignored
from mxtree.tree.manifest import load_manifest
from mxtree.tree.records import upstream_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxtree.edit.plan import Plan
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

    Raises `FatalError` when ``tree`` has none of that name, when a repository holds uncommitted
    changes or an unfinished rebase, when the base is not below its HEAD, or when a commit would
    not survive the patch format.
    """
    manifest = load_manifest(tree)
    if not manifest.patched:
        raise FatalError(
            f"{tree} was built with --no-patches: its commits are not a series",
            hint="mxtree build --out another/tree, and work there",
        )
    records = {name: record_of(tree, manifest, name) for name in names or manifest.upstreams}
    return tuple(
        _export(project, tree, name, record, refresh=refresh) for name, record in records.items()
    )


def record_of(tree: Path, manifest: Manifest, name: str) -> UpstreamRecord:
    """Return an upstream of ``tree``; raises `FatalError` that names those it has."""
    found = manifest.upstreams.get(name)
    if found is None:
        known = ", ".join(manifest.upstreams)
        raise FatalError(f"{tree} has no upstream {name!r}", hint=f"use one of {known}")
    return found


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
    base, head = record.base_commit, git_text("rev-parse", "HEAD", cwd=repository)
    directory = project.series_dir(name, record.version)
    # Formatting is most of the time and git's own; what else is read is read beside it.
    with ThreadPoolExecutor(max_workers=1) as beside:
        formatting = beside.submit(format_range, repository, base, head)
        refuse_unfinished(repository)
        commits = _commits(repository, base, head)
        old = load_series(directory).patches if directory.is_dir() else ()
        recorded = read_notes(repository, tuple(commit.id for commit in commits))
        raw = formatting.result()
    proven = _proven(record, commits, raw)
    applied = _apply_back(repository, base, raw, commits, proven)
    is_proven = proven == len(commits)
    final = raw if is_proven else _canonical(repository, base, raw, applied, commits)
    file_names = assign_names(
        [recorded.get(commit.id, ()) for commit in commits],
        [_subject(commit) for commit in commits],
        [patch.name for patch in old],
        names_in_all_versions(directory),
    )
    new = list(zip(file_names, final, strict=True))
    plan = plans.make_plan(name, directory, old, new, refresh=refresh)
    kept = _applied_as_kept(repository, base, plan, final, applied)
    if [item.tree for item in kept] != [item.tree for item in applied]:
        # With its old line numbers a patch would land elsewhere: the context is not unique.
        plan = plans.make_plan(name, directory, old, new, refresh=True)
        kept = apply_series(repository, base, plan.patches)
    return Export(plan, kept)


def _applied_as_kept(
    repository: Path,
    base: str,
    plan: Plan,
    final: Sequence[bytes],
    applied: Sequence[Applied],
) -> tuple[Applied, ...]:
    """Return what the files that stay or are written give when they are applied."""
    if [patch.raw for patch in plan.patches] == list(final):
        pairs = zip(applied, plan.patches, strict=True)
        return tuple(replace(item, patch=patch) for item, patch in pairs)
    return apply_series(repository, base, plan.patches)


def refuse_unfinished(repository: Path) -> None:
    """Raise `FatalError` when there are uncommitted changes, or a rebase or am that stopped."""
    states = ("rebase-merge", "rebase-apply", "CHERRY_PICK_HEAD", "MERGE_HEAD")
    wanted = [word for state in states for word in ("--git-path", state)]
    paths = git_text("rev-parse", "--path-format=absolute", *wanted, cwd=repository).splitlines()
    for state, path in zip(states, paths, strict=True):
        if Path(path).exists():
            raise FatalError(
                f"{repository}: an operation of git is unfinished ({state})",
                hint=f"{shell_git(repository)} status tells how to finish or abort it",
                code=ExitCode.CHECK_FAILED,
            )
    dirty = changes(repository)
    if dirty:
        raise FatalError(
            f"{repository} has changes that are in no commit",
            details=dirty[:20],
            hint=f"{shell_git(repository)} commit (a new patch), commit --amend, "
            "or mxtree fold PATCH",
            code=ExitCode.CHECK_FAILED,
        )


def changes(repository: Path) -> list[str]:
    """Return what `git status` shows, less what running the code leaves behind (bytecode)."""
    shown = git("status", "--porcelain", "-z", "--untracked-files=all", cwd=repository)
    lines = [line for line in shown.decode("utf-8", "replace").split("\0") if line]
    return [line for line in lines if not _is_by_product(line)]


def _is_by_product(line: str) -> bool:
    return line.startswith("?? ") and any(map(is_ignored, line[3:].split("/")))


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
            hint=f"{shell_git(repository)} rebase {base[:12]}, "
            "or mxtree rebase for another release",
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


def _proven(record: UpstreamRecord, commits: Sequence[_Commit], raw: Sequence[bytes]) -> int:
    """Return how many leading commits are those that the build made of the very same bytes."""
    for index, (patch, commit, data) in enumerate(zip(record.patches, commits, raw, strict=False)):
        if patch.commit != commit.id or patch.digest != hashlib.sha256(data).hexdigest():
            return index
    return min(len(record.patches), len(commits))


def _apply_back(
    repository: Path,
    base: str,
    raw: Sequence[bytes],
    commits: Sequence[_Commit],
    proven: int,
) -> tuple[Applied, ...]:
    """Apply what was formatted and compare: the proof that nothing is lost in a patch file.

    The first ``proven`` patches were applied by the build, which made these very commits.
    """
    patches = [
        Patch(repository / commit.id, "0000", commit.id[:12], data)
        for commit, data in zip(commits, raw, strict=True)
    ]
    built = [
        Applied(patch, commit.id, commit.tree, Fit.EXACT)
        for patch, commit in zip(patches[:proven], commits[:proven], strict=True)
    ]
    below = commits[proven - 1].id if proven else base
    rest = apply_series(repository, below, patches[proven:]) if patches[proven:] else ()
    applied = (*built, *rest)
    for commit, made in zip(commits, applied, strict=True):
        if made.tree != commit.tree:
            _refuse(repository, commit, f"its patch gives tree {made.tree[:12]}, not its own")
    return applied


def _refuse(repository: Path, commit: _Commit, reason: str) -> None:
    raise FatalError(
        f"commit {commit.id[:12]} ({_subject(commit)}) does not survive the patch format: {reason}",
        hint=f"{shell_git(repository)} rebase -i {commit.id[:12]}^ and change that commit",
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
