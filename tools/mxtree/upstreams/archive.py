# SPDX-License-Identifier: Apache-2.0
"""Read a release as the package index serves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.upstreams.content import check
from mxtree.upstreams.sdist import read_sdist
from mxtree.upstreams.wheel import read_wheel

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.upstreams.content import File


def read_archive(path: Path) -> list[File]:
    """Return the files of an sdist or wheel; no code of it is run.

    Raises `FatalError` naming each member that must not be unpacked, or what is wrong with it.
    """
    files = read_wheel(path) if path.suffix == ".whl" else read_sdist(path)
    check(files, path.name)
    return files
