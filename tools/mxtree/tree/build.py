# SPDX-License-Identifier: Apache-2.0
"""Build a tree aside, then switch to it: upstreams, series, overlay, recipes, manifest."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mxtree import __version__, locks
from mxtree.edit.notes import write_notes
from mxtree.engine import apply_series
from mxtree.errors import ExitCode, FatalError
from mxtree.series import load_series
from mxtree.tree import repository, swap
from mxtree.tree.files import copy_files, digest, scan
from mxtree.tree.manifest import (
    MANIFEST_NAME,
    SCHEMA,
    FileRecord,
    FolderRecord,
    Manifest,
    json_digest,
    load_manifest,
)
from mxtree.tree.records import base_record, upstream_record
from mxtree.tree.verify import verify
from mxtree.upstreams import Source, ensure_imported, load_upstreams
from mxtree.upstreams.fetch import check_sources

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mxtree.project import Project
    from mxtree.series import Patch
    from mxtree.tree.manifest import UpstreamRecord
    from mxtree.upstreams import Imported

#: Folders of this repository that a tree carries along as they are.
FOLDERS = ("overlay", "recipes")


@dataclass(frozen=True)
class BuildRequest:
    """What to build. A version or source that is not named is the pinned one, from the index.

    ``only`` names the upstreams to put in, all of them by default.
    """

    out: Path
    versions: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    patched: bool = True
    discard: bool = False
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class BuildResult:
    """The manifest of the tree at ``out``; ``reused`` when it already was what was asked for."""

    manifest: Manifest
    reused: bool


@dataclass(frozen=True)
class _Part:
    """One upstream on its way into the tree."""

    imported: Imported
    patches: tuple[Patch, ...]


def build(project: Project, request: BuildRequest) -> BuildResult:
    """Build the tree that ``request`` describes and put it at ``request.out`` in one step.

    The old tree stays as it is until the new one is whole. Raises `FatalError` when something
    cannot be had or read, `ConflictError` when a patch does not apply, and refuses to replace a
    tree that holds work which is nowhere else (unless ``request.discard``).
    """
    with locks.hold(request.out):
        swap.recover(request.out)
        if request.out.exists() and not request.discard:
            refuse_to_lose_work(request.out)
        parts = _collect(project, request)
        inputs = _inputs_digest(project, request, parts)
        if _is_current(request.out, inputs):
            return BuildResult(load_manifest(request.out), reused=True)
        with swap.staging(request.out) as stage:
            manifest = _assemble(project, request, parts, inputs, stage)
            swap.replace(stage, request.out)
    return BuildResult(manifest, reused=False)


def refuse_to_lose_work(out: Path) -> None:
    """Raise `FatalError` when ``out`` is no tree, or has changes that a build would overwrite."""
    if not (out / MANIFEST_NAME).exists() and not any(out.iterdir()):
        return
    differences = verify(out)
    if differences:
        shown = [str(item) for item in differences[:20]]
        more = len(differences) - len(shown)
        raise FatalError(
            f"{out} has {len(differences)} changes that a build would overwrite",
            details=shown + ([f"... and {more} more (mxtree verify {out})"] if more else []),
            hint="keep them: commit in the tree, then `mxtree export` (overlay files: copy back); "
            "lose them: run the same command with --discard",
            code=ExitCode.CHECK_FAILED,
        )


def _collect(project: Project, request: BuildRequest) -> dict[str, _Part]:
    upstreams = load_upstreams(project)
    check_sources(set(upstreams.names), request.sources)
    parts = {}
    for name in request.only or upstreams.names:
        upstream = upstreams.get(name)
        version = request.versions.get(name, upstream.default)
        source = request.sources.get(name, Source.parse("index"))
        imported = ensure_imported(project, upstream, version, source)
        parts[name] = _Part(imported, _patches(project, request, name, version))
    return parts


def _patches(project: Project, request: BuildRequest, name: str, version: str) -> tuple[Patch, ...]:
    if not request.patched:
        return ()
    directory = project.series_dir(name, version)
    if not directory.is_dir():
        having = sorted(path.name for path in directory.parent.glob("*/") if path.is_dir())
        raise FatalError(
            f"there is no patch series for {name} {version} ({directory})",
            hint=f"use one of {', '.join(having) or 'none yet'}, or build it with --no-patches",
        )
    return load_series(directory).patches


def _inputs_digest(project: Project, request: BuildRequest, parts: Mapping[str, _Part]) -> str:
    return json_digest(
        {
            "schema": SCHEMA,
            "patched": request.patched,
            "upstreams": {
                name: [part.imported.version, part.imported.source, part.imported.commit]
                + [patch.digest for patch in part.patches]
                for name, part in parts.items()
            },
            "folders": {name: digest(scan(project.root / name)) for name in FOLDERS},
        }
    )


def _is_current(out: Path, inputs: str) -> bool:
    if not (out / MANIFEST_NAME).exists():
        return False
    return load_manifest(out).inputs == inputs and not verify(out)


def _assemble(
    project: Project, request: BuildRequest, parts: Mapping[str, _Part], inputs: str, stage: Path
) -> Manifest:
    # Most of the time goes to git processes, so the upstreams are made side by side.
    with ThreadPoolExecutor() as pool:
        made = {
            name: pool.submit(_make_upstream, stage / name, part) for name, part in parts.items()
        }
        folders = {
            name: _folder_record(project.root / name, stage / name)
            for name in FOLDERS
            if (project.root / name).is_dir()
        }
        upstreams = {name: future.result() for name, future in made.items()}
    manifest = Manifest(
        tool_version=__version__,
        patched=request.patched,
        digest="",
        inputs=inputs,
        upstreams=upstreams,
        folders=folders,
    )
    manifest = manifest.model_copy(update={"digest": manifest.compute_digest()})
    manifest.write(stage)
    return manifest


def _make_upstream(path: Path, part: _Part) -> UpstreamRecord:
    imported = part.imported
    repository.create(path, imported.repo)
    applied = apply_series(path / ".git", imported.commit, part.patches) if part.patches else ()
    record = upstream_record(base_record(imported), applied)
    repository.check_out(path, base=imported.commit, tag=imported.tag, head=record.head_commit)
    write_notes(path, {item.commit: item.patch.name for item in applied})
    return record


def _folder_record(source: Path, target: Path) -> FolderRecord:
    files = copy_files(source, target)
    records = {path: FileRecord(mode=e.mode, sha256=e.sha256) for path, e in files.items()}
    return FolderRecord(digest=digest(files), files=records)
