# SPDX-License-Identifier: Apache-2.0
"""What `patches/upstreams.toml` pins: upstreams, their releases, and where each comes from."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mxtree.errors import FatalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: How a release is packaged on the index: a `.tar.gz` of sources, or a pure-Python wheel.
Packaging = Literal["sdist", "wheel"]


@dataclass(frozen=True)
class Release:
    """One pinned release of an upstream."""

    version: str
    #: Name of the tag that upstream gave the release, and of the tag on the import commit.
    tag: str
    #: File name on the package index, and the hash (hex) of its bytes.
    file: str
    sha256: str
    #: Commit of the release in the public repository; None where none is known.
    commit: str | None
    #: Id of the git tree that the file's content makes.
    tree: str


@dataclass(frozen=True)
class Upstream:
    """One upstream project and the releases of it that are pinned."""

    name: str
    #: Name of the distribution on the package index.
    package: str
    packaging: Packaging
    default: str
    #: URL of the public git repository.
    repository: str
    #: Tag of a release, with ``{version}`` in it; a release may name another one.
    tag_pattern: str
    releases: Mapping[str, Release]

    def release(self, version: str) -> Release:
        """Return a release; raises `FatalError` that names the nearest pinned ones."""
        found = self.releases.get(version)
        if found is None:
            raise FatalError(
                f"{self.name} {version} is not pinned in patches/upstreams.toml",
                details=[f"nearest: {', '.join(nearest(version, self.releases))}"],
                hint=f"use one of {', '.join(self.releases)}, "
                f"or add it: mxtree fetch --pin {self.name}@{version}",
            )
        return found


@dataclass(frozen=True)
class Upstreams:
    """All upstreams of a project, in the order of the file."""

    by_name: Mapping[str, Upstream]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.by_name)

    def get(self, name: str) -> Upstream:
        """Return an upstream; raises `FatalError` that names the nearest ones."""
        found = self.by_name.get(name)
        if found is None:
            raise FatalError(
                f"there is no upstream {name!r} in patches/upstreams.toml",
                hint=f"did you mean {' or '.join(nearest(name, self.by_name))}?",
            )
        return found


def nearest(wanted: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the ``count`` known names or versions that look most like the wanted one."""
    return difflib.get_close_matches(wanted, list(known), n=count, cutoff=0.0)
