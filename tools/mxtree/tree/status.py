# SPDX-License-Identifier: Apache-2.0
"""One look at everything: pins, series, the tree, how they differ, what to do next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from mxtree.errors import FatalError
from mxtree.rebase.store import Store
from mxtree.series import load_series
from mxtree.tree.build import FOLDERS
from mxtree.tree.files import digest, scan
from mxtree.tree.manifest import MANIFEST_NAME, load_manifest
from mxtree.tree.verify import verify
from mxtree.upstreams import load_upstreams

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mxtree.project import Project
    from mxtree.tree.manifest import Manifest

TreeState = Literal["absent", "current", "outdated", "changed", "unreadable"]


@dataclass(frozen=True)
class UpstreamStatus:
    """One pinned upstream. ``problem`` is set when its series cannot be read."""

    name: str
    version: str
    tag: str
    patches: tuple[str, ...]
    problem: str | None = None


@dataclass(frozen=True)
class Status:
    """The state of a project and one tree. ``reasons`` say why the tree is not current."""

    upstreams: tuple[UpstreamStatus, ...]
    tree: str
    state: TreeState
    digest: str | None
    patched: bool | None
    reasons: tuple[str, ...]
    rebases: tuple[str, ...]
    next_command: str


def collect_status(project: Project, tree: Path) -> Status:
    """Read pins, series and tree; no network, nothing written."""
    status = _tree_status(project, tuple(_upstream_statuses(project)), tree)
    opened = tuple(_open_rebases(project, status.upstreams))
    if not opened:
        return status
    # An open rebase comes first: what it changes decides what the tree should be.
    lines = tuple(line for line, _ in opened)
    return replace(status, rebases=lines, next_command=opened[0][1])


def _open_rebases(
    project: Project, upstreams: tuple[UpstreamStatus, ...]
) -> Iterator[tuple[str, str]]:
    """Yield where each open rebase is, and the command that goes on with it."""
    for upstream in upstreams:
        store, verb = Store.of(project, upstream.name), f"mxtree rebase {upstream.name}"
        if not store.is_open():
            continue
        try:
            rebase = store.load()
        except FatalError as error:
            yield error.message, f"{verb} --abort"
            continue
        at = f"{rebase.position} of {len(rebase.steps)} patches done, {rebase.status}"
        if rebase.status == "conflict":
            at += f" in {rebase.current.name}; resolve it in {store.work}"
        line = f"rebase of {upstream.name} {rebase.old.version} onto {rebase.new.version}: {at}"
        yield line, f"{verb} --{'finish' if rebase.status == 'done' else 'continue'}"


def _tree_status(project: Project, upstreams: tuple[UpstreamStatus, ...], tree: Path) -> Status:
    if not (tree / MANIFEST_NAME).exists():
        return _status(upstreams, tree, "absent", None, ())
    try:
        manifest = load_manifest(tree)
        differences = verify(tree)
    except FatalError as error:
        return _status(upstreams, tree, "unreadable", None, (error.message, *error.details))
    if differences:
        reasons = tuple(str(item) for item in differences)
        return _status(upstreams, tree, "changed", manifest, reasons)
    reasons = tuple(_outdated(project, upstreams, manifest))
    return _status(upstreams, tree, "outdated" if reasons else "current", manifest, reasons)


def _upstream_statuses(project: Project) -> list[UpstreamStatus]:
    upstreams = load_upstreams(project)
    found = []
    for name in upstreams.names:
        upstream = upstreams.get(name)
        release = upstream.release(upstream.default)
        try:
            series = load_series(project.series_dir(name, upstream.default)).patches
            titles, problem = tuple(f"{p.id} {p.subject}" for p in series), None
        except FatalError as error:
            titles, problem = (), error.message
        found.append(UpstreamStatus(name, upstream.default, release.tag, titles, problem))
    return found


def _outdated(
    project: Project, upstreams: tuple[UpstreamStatus, ...], manifest: Manifest
) -> list[str]:
    reasons = []
    for pinned in upstreams:
        built = manifest.upstreams.get(pinned.name)
        if built is None or built.version != pinned.version:
            has = built.version if built else "nothing"
            reasons.append(f"{pinned.name}: tree has {has}, pinned is {pinned.version}")
            continue
        reasons += _series_changes(project, pinned, manifest)
    for name in FOLDERS:
        recorded = manifest.folders.get(name)
        if (recorded.digest if recorded else digest({})) != digest(scan(project.root / name)):
            reasons.append(f"{name}/ has changed since the tree was built")
    return reasons


def _series_changes(project: Project, pinned: UpstreamStatus, manifest: Manifest) -> list[str]:
    if pinned.problem:
        return [f"{pinned.name}: {pinned.problem}"]
    series = load_series(project.series_dir(pinned.name, pinned.version)).patches
    built = [patch.digest for patch in manifest.upstreams[pinned.name].patches]
    if not manifest.patched:
        return [f"{pinned.name}: built with --no-patches"]
    changed = [patch.digest for patch in series] != built
    return [f"{pinned.name}: the series has changed since the tree was built"] if changed else []


def _status(
    upstreams: tuple[UpstreamStatus, ...],
    tree: Path,
    state: TreeState,
    manifest: Manifest | None,
    reasons: tuple[str, ...],
) -> Status:
    broken = [item.name for item in upstreams if item.problem]
    commands = {
        "absent": f"mxtree build --out {tree}",
        "current": f"mxtree install {tree}, then mxtree test",
        "outdated": f"mxtree build --out {tree}",
        "changed": f"mxtree verify {tree} (all of them), mxtree build --out {tree} (how to go on)",
        "unreadable": f"mxtree build --out {tree} --discard",
    }
    return Status(
        upstreams=upstreams,
        tree=str(tree),
        state=state,
        digest=manifest.digest if manifest else None,
        patched=manifest.patched if manifest else None,
        reasons=reasons,
        rebases=(),
        next_command="mxtree lint" if broken else commands[state],
    )
