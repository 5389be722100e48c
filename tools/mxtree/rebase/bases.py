# SPDX-License-Identifier: Apache-2.0
"""From and onto: turn a version, a tag or a commit into a base that is in the cache."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from mxtree.errors import FatalError
from mxtree.git import run_git
from mxtree.rebase.model import End
from mxtree.upstreams import Release, Source, ensure_imported

if TYPE_CHECKING:
    from mxtree.project import Project
    from mxtree.upstreams import Imported, Upstream

#: The word for the newest release that the index has.
NEWEST = "newest"

_COMMIT = re.compile(r"[0-9a-f]{40}")


def resolve(project: Project, upstream: Upstream, wanted: str, source: Source) -> Imported:
    """Return the base called ``wanted``: a pinned version, its tag, or with git any revision.

    "newest" is the newest release of the index, pinned or not.
    A version or tag that `upstreams.toml` pins comes from ``source``. Any other tag, branch or
    commit needs a git source with a location. Raises `FatalError` that names the nearest known
    versions.
    """
    if wanted == NEWEST and source.kind == "index":
        return _newest(project, upstream, source)
    release = _pinned(upstream, wanted)
    if release is not None:
        return ensure_imported(project, upstream, release.version, source)
    if source.kind != "git":
        upstream.release(wanted)
    from mxtree.upstreams.git_import import commit_of_remote_tag, import_from_git

    commit = wanted if _COMMIT.fullmatch(wanted) else None
    if commit is None and source.path is not None:
        found = run_git(
            "rev-parse", "-q", "--verify", f"{wanted}^{{commit}}", cwd=source.path, ok=(0, 1, 128)
        )
        commit = found.stdout.decode().strip() or None
    if commit is None and source.path is None:
        commit = commit_of_remote_tag(source.location or upstream.repository, wanted)
    if commit is None:
        raise FatalError(
            f"{source} has no revision {wanted!r}",
            hint="name a tag, a full commit id, or one of " + ", ".join(upstream.releases),
        )
    version = version_name(upstream, wanted, commit)
    revision = Release(version, wanted if wanted != commit else version, "", "", commit, "")
    return import_from_git(upstream, revision, Source("git", source.location, commit))


def _newest(project: Project, upstream: Upstream, source: Source) -> Imported:
    from mxtree.upstreams.pin import newest

    found = newest(upstream)
    known = dataclasses.replace(upstream, releases={**upstream.releases, found.version: found})
    return ensure_imported(project, known, found.version, source)


def version_name(upstream: Upstream, wanted: str, commit: str) -> str:
    """Return the name that the series directory of a revision gets.

    The version when the revision is a tag that fits the upstream's pattern, else the commit.
    """
    pattern = re.escape(upstream.tag_pattern).replace(re.escape("{version}"), r"([0-9][0-9a-z.]*)")
    match = re.fullmatch(pattern, wanted)
    return match[1] if match else f"g{commit[:12]}"


def _pinned(upstream: Upstream, wanted: str) -> Release | None:
    for release in upstream.releases.values():
        if wanted in {release.version, release.tag}:
            return release
    return None


def end_of(imported: Imported) -> End:
    """Return the base as the state file records it."""
    return End(
        version=imported.version,
        tag=imported.tag,
        source=dict(imported.source),
        commit=imported.commit,
        tree=imported.tree,
    )


def refuse_older(old: Imported, new: Imported, *, backport: bool) -> None:
    """Raise `FatalError` for a rebase that goes nowhere, or backwards without ``backport``."""
    if old.commit == new.commit:
        raise FatalError(
            f"the series of {old.upstream} is on {old.version} already",
            hint="mxtree status shows the pins; name another release with --onto",
        )
    before, after = _version(old.version), _version(new.version)
    if before and after and after < before and not backport:
        raise FatalError(
            f"{new.version} is older than {old.version}, the release the series is made for",
            hint="to carry the series back on purpose, add --backport",
        )


def newer_first(upstream: Upstream) -> list[str]:
    """Return the pinned versions, the newest first."""
    return sorted(upstream.releases, key=Version, reverse=True)


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None
