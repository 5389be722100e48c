# SPDX-License-Identifier: Apache-2.0
"""What `mxtree fetch` does: which releases are meant, bring each in, say what happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mxtree.errors import FatalError
from mxtree.git import git
from mxtree.upstreams.imports import Imported, ensure_imported
from mxtree.upstreams.load import load_upstreams
from mxtree.upstreams.progress import size
from mxtree.upstreams.source import Source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mxtree.project import Project
    from mxtree.upstreams.config import Upstream, Upstreams

ALL = "all"


@dataclass(frozen=True)
class Fetched:
    """A release of the cache with the size of its content."""

    imported: Imported
    files: int
    bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        item = self.imported
        return {
            "upstream": item.upstream,
            "version": item.version,
            "tag": item.tag,
            "source": dict(item.source),
            "commit": item.commit,
            "tree": item.tree,
            "cached": item.cached,
            "downloaded": item.downloaded,
            "files": self.files,
            "bytes": self.bytes,
        }

    def __str__(self) -> str:
        item = self.imported
        state = "was in the cache" if item.cached else f"fetched from {item.source['kind']}"
        received = f", {size(item.downloaded)} downloaded" if item.downloaded is not None else ""
        return (
            f"{item.upstream} {item.version}: {state}{received}; {self.files} files, "
            f"{size(self.bytes)}, commit {item.commit[:12]}"
        )


def fetch(project: Project, wanted: Sequence[str], sources: Mapping[str, Source]) -> list[Fetched]:
    """Bring the wanted releases (``NAME``, ``NAME@VERSION``, ``NAME@all``) into the cache.

    Nothing wanted means the default release of every upstream. An upstream without a source comes
    from the index. Raises `FatalError` on an unknown name or version before anything is fetched,
    and as `ensure_imported` does.
    """
    releases = select(load_upstreams(project), wanted)
    check_sources({upstream.name for upstream, _ in releases}, sources)
    found = []
    for upstream, version in releases:
        source = sources.get(upstream.name, Source("index"))
        found.append(_measure(ensure_imported(project, upstream, version, source)))
    return found


def select(upstreams: Upstreams, wanted: Sequence[str]) -> list[tuple[Upstream, str]]:
    """Return the releases that are meant, each once; raises `FatalError` on an unknown one."""
    found: dict[tuple[str, str], Upstream] = {}
    for text in wanted or upstreams.names:
        name, separator, version = text.partition("@")
        upstream = upstreams.get(name)
        versions = [version] if separator else [upstream.default]
        for each in upstream.releases if version == ALL else versions:
            found[name, upstream.release(each).version] = upstream
    return [(upstream, version) for (_, version), upstream in found.items()]


def check_sources(names: set[str], sources: Mapping[str, Source]) -> None:
    """Refuse one folder or repository for several upstreams: it can hold only one of them."""
    for name, source in sources.items():
        others = [other for other in names - {name} if sources.get(other) == source]
        if source.location and name in names and others:
            raise FatalError(
                f"--source {source} is given for {name} and {', '.join(sorted(others))}",
                hint=f"say which one it is: --source {name}={source}",
            )


def _measure(imported: Imported) -> Fetched:
    rows = git("ls-tree", "-r", "-l", "-z", imported.commit, cwd=imported.repo).split(b"\0")
    sizes = [row.partition(b"\t")[0].split()[3] for row in rows if row]
    return Fetched(imported, len(sizes), sum(int(each) for each in sizes if each != b"-"))
