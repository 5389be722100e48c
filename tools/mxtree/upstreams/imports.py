# SPDX-License-Identifier: Apache-2.0
"""A release becomes a commit in a bare repository of the user's cache, once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxtree.cache import cache_dir
from mxtree.errors import ExitCode, FatalError
from mxtree.locks import hold
from mxtree.upstreams import repository
from mxtree.upstreams.objects import commit_id, tree_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mxtree.project import Project
    from mxtree.upstreams.config import Release, Upstream
    from mxtree.upstreams.content import File
    from mxtree.upstreams.source import Source

#: Seconds to wait for another mxtree that imports or fetches into the same repository.
LOCK_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Imported:
    """A release that is in the cache as a commit."""

    #: Name of the upstream, version and tag of the release.
    upstream: str
    version: str
    tag: str
    #: What the content is, for a manifest: ``kind`` and hashes, never a path or URL.
    source: Mapping[str, str]
    #: The bare repository that holds the commit; it has a ``shallow`` file when it came from git.
    repo: Path
    commit: str
    tree: str
    #: Whether the cache had it already, and how many bytes were downloaded for it if known.
    cached: bool = True
    downloaded: int | None = None


def ensure_imported(project: Project, upstream: Upstream, version: str, source: Source) -> Imported:
    """Return the import of a release, fetching and importing it first when the cache lacks it.

    Raises `FatalError` on an unknown version, a hash that differs, a missing network or file, an
    archive with members that must not be unpacked, or content whose tree is not the pinned one.
    """
    release = upstream.release(version)
    try:
        if source.kind == "index":
            return _from_index(project, upstream, release)
        if source.kind == "dir":
            return _from_folder(upstream, release, source)
        from mxtree.upstreams.git_import import import_from_git

        return import_from_git(upstream, release, source)
    except OSError as error:
        raise FatalError(
            f"the cache cannot be used: {error}",
            hint=f"make {cache_dir()} writable, or name another folder: MXTREE_CACHE=/path",
            code=ExitCode.COULD_NOT_CHECK,
        ) from error


def _from_index(project: Project, upstream: Upstream, release: Release) -> Imported:
    repo = repository_path(upstream.name)
    message = (
        f"Import {upstream.name} {release.version}\n\n"
        f"Tag: {release.tag}\nFile: {release.file}\nSHA256: {release.sha256}\n"
    )
    commit = commit_id(release.tree, message)
    ref = f"refs/mxtree/index/{release.sha256}"
    downloaded, cached = None, repository.find(repo, ref) == (commit, release.tree)
    if not cached:
        from mxtree.upstreams.archive import read_archive
        from mxtree.upstreams.download import ensure_downloaded

        download = ensure_downloaded(upstream, release)
        downloaded = download.received
        files = read_archive(download.path)
        _check_tree(project, upstream, release, tree_id(files))
        _import(repo, files, message, (f"refs/tags/{release.tag}", ref))
    identity = {"kind": "index", "file": release.file, "sha256": release.sha256}
    return Imported(
        upstream.name,
        release.version,
        release.tag,
        identity,
        repo,
        commit,
        release.tree,
        cached,
        downloaded,
    )


def _check_tree(project: Project, upstream: Upstream, release: Release, found: str) -> None:
    if found != release.tree:
        raise FatalError(
            f"{release.file} has the pinned sha256, but makes another tree than the pinned one",
            details=[f"pinned: {release.tree}", f"found:  {found}"],
            hint=f'correct tree under [upstream.{upstream.name}.release."{release.version}"] '
            f"in {project.upstreams_file}",
            code=ExitCode.CHECK_FAILED,
        )


def _from_folder(upstream: Upstream, release: Release, source: Source) -> Imported:
    from mxtree.upstreams.folder import read_folder

    if source.path is None:
        raise FatalError(f"--source {source} names no folder", hint="use dir:PATH")
    repo = repository_path(upstream.name)
    files = read_folder(source.path)
    tree = tree_id(files)
    message = f"Import {upstream.name} {release.version} from a directory\n\nTree: {tree}\n"
    commit = commit_id(tree, message)
    ref = f"refs/mxtree/dir/{release.version}/{tree}"
    cached = repository.find(repo, ref) == (commit, tree)
    if not cached:
        _import(repo, files, message, (ref,))
    identity = {"kind": "dir", "tree": tree}
    return Imported(
        upstream.name, release.version, release.tag, identity, repo, commit, tree, cached
    )


def _import(repo: Path, files: list[File], message: str, refs: tuple[str, ...]) -> None:
    """Import and point the refs at it; the last one is what later runs look for."""
    with hold(repo, timeout_s=LOCK_TIMEOUT_S):
        repository.create(repo)
        commit = repository.import_files(repo, files, message)
        for ref in refs:
            repository.publish(repo, ref, commit)


def repository_path(name: str, suffix: str = "") -> Path:
    """Return where the bare repository of an upstream is in the cache."""
    return cache_dir() / "upstreams" / f"{name}{suffix}.git"
