# SPDX-License-Identifier: Apache-2.0
"""A release becomes a commit in a bare repository of the user's cache, once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mxtree.project import Project
    from mxtree.upstreams.config import Upstream
    from mxtree.upstreams.source import Source


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
    #: Bytes that were downloaded for it; None when it was in the cache already.
    downloaded: int | None = None


def ensure_imported(project: Project, upstream: Upstream, version: str, source: Source) -> Imported:
    """Return the import of a release, fetching and importing it first when the cache lacks it.

    Raises `FatalError` on an unknown version, a hash that differs, a missing network or file, an
    archive with members that must not be unpacked, or content whose tree is not the pinned one.
    """
    raise NotImplementedError(project, upstream, version, source)
