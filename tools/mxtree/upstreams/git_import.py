# SPDX-License-Identifier: Apache-2.0
"""A release from a git repository: upstream's own commit object, without its history."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from mxtree.cache import is_offline
from mxtree.errors import ExitCode, FatalError
from mxtree.git import GitError, git
from mxtree.locks import hold
from mxtree.upstreams import repository
from mxtree.upstreams.imports import LOCK_TIMEOUT_S, Imported, repository_path
from mxtree.upstreams.local_clone import copy_commit, resolve_tag
from mxtree.upstreams.transport import transport_env

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.upstreams.config import Release, Upstream
    from mxtree.upstreams.source import Source


def import_from_git(upstream: Upstream, release: Release, source: Source) -> Imported:
    """Return the import of a commit: the source's, else the release's pinned one, else its tag's.

    The repository is shallow, and not the one that index imports share, because a shallow
    repository cannot serve as a reference for clones. Raises `FatalError` when the commit cannot be
    had.
    """
    repo = repository_path(upstream.name, "-from-git")
    place = source.location or upstream.repository
    commit = source.commit or release.commit or _commit_of_tag(repo, place, release, source)
    ref = f"refs/mxtree/git/{commit}"
    cached = repository.find(repo, ref)
    if cached is None:
        with hold(repo, timeout_s=LOCK_TIMEOUT_S):
            repository.create(repo)
            _bring(repo, place, commit, source.path)
            repository.publish(repo, ref, commit)
    found = cached or repository.find(repo, ref)
    if found is None or found[0] != commit:
        raise FatalError(f"{commit} from {place} is no commit", code=ExitCode.CHECK_FAILED)
    identity = {"kind": "git", "commit": commit}
    return Imported(
        upstream=upstream.name,
        version=release.version,
        tag=release.tag,
        source=identity,
        repo=repo,
        commit=commit,
        tree=found[1],
        cached=cached is not None,
    )


def _bring(repo: Path, place: str, commit: str, path: Path | None) -> None:
    if path is not None:
        copy_commit(path, commit, repo)
        return
    _refuse_offline(place, commit)
    try:
        git(
            *("-c", "fetch.fsckObjects=true", "fetch", "--quiet", "--depth=1", "--no-tags"),
            *("--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules"),
            *("--end-of-options", place, commit),
            cwd=repo,
            env=transport_env(),
        )
    except GitError as error:
        raise FatalError(
            f"{place} does not give commit {commit}",
            details=error.details,
            hint="check the URL and the commit; a server that gives only branches and tags can be "
            "cloned and named as --source git:PATH",
            code=ExitCode.COULD_NOT_CHECK,
        ) from error


def _commit_of_tag(repo: Path, place: str, release: Release, source: Source) -> str:
    """Return the commit of the release's tag, asking a URL only once."""
    if source.path is not None:
        return resolve_tag(source.path, release.tag)
    key = hashlib.sha256(place.encode()).hexdigest()[:16]
    ref = f"refs/mxtree/git-tags/{key}/{release.tag}"
    known = repository.find(repo, ref)
    if known is not None:
        return known[0]
    commit = _ask_for_tag(place, release)
    with hold(repo, timeout_s=LOCK_TIMEOUT_S):
        repository.create(repo)
        _bring(repo, place, commit, None)
        repository.publish(repo, ref, commit)
    return commit


def _ask_for_tag(place: str, release: Release) -> str:
    _refuse_offline(place, f"of the tag {release.tag}")
    try:
        commit = commit_of_remote_tag(place, release.tag)
    except GitError as error:
        raise FatalError(
            f"{place} cannot be read", details=error.details, code=ExitCode.COULD_NOT_CHECK
        ) from error
    if commit is None:
        raise FatalError(
            f"{place} has no tag {release.tag}, and upstreams.toml pins no commit for it",
            hint="name the commit: --source git:URL@COMMIT",
            code=ExitCode.COULD_NOT_CHECK,
        )
    return commit


def commit_of_remote_tag(place: str, tag: str) -> str | None:
    """Return the commit of a tag, None when there is no such tag; raises `GitError`."""
    name = f"refs/tags/{tag}"
    listing = git("ls-remote", place, name, name + "^{}", env=transport_env()).decode()
    ids = {name: oid for oid, name in (line.split("\t") for line in listing.splitlines())}
    return ids.get(name + "^{}") or ids.get(name)


def _refuse_offline(place: str, commit: str) -> None:
    if is_offline():
        raise FatalError(
            f"commit {commit} from {place} is not in the cache, and MXTREE_OFFLINE forbids the "
            "network",
            hint="run the same command once with MXTREE_OFFLINE=0",
            code=ExitCode.COULD_NOT_CHECK,
        )
