# SPDX-License-Identifier: Apache-2.0
"""Wheels of the distributions of a tree: with its files, or with a pointer to it (editable)."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from mxtree.environment import metadata
from mxtree.environment.wheelfile import Wheel, WheelFile
from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.environment.distributions import Distribution

#: Our note in the .dist-info folder: it tells a distribution of ours from a foreign one.
NOTE = "mxtree.json"


def regular(distribution: Distribution, version: str, digest: str) -> Wheel:
    """Return the wheel that holds the files of ``distribution``; same files, same bytes."""
    return Wheel(
        name=distribution.name,
        version=version,
        metadata=metadata.with_header(distribution.metadata, "Version", version),
        files={path: _member(distribution.root, path) for path in distribution.files},
        info={**distribution.info, NOTE: _json({"digest": digest})},
    )


def editable(distribution: Distribution, version: str, digest: str, tree: Path) -> Wheel:
    """Return a wheel that puts ``distribution.root`` on sys.path, as PEP 660 describes it."""
    root = str(distribution.root)
    if "\n" in root or "\r" in root:
        raise FatalError(f"a path with a line break cannot stand in a .pth file: {root!r}")
    direct_url = {"url": distribution.root.as_uri(), "dir_info": {"editable": True}}
    return Wheel(
        name=distribution.name,
        version=version,
        metadata=metadata.with_header(distribution.metadata, "Version", version),
        files={f"_mxtree_{distribution.name.replace('-', '_')}.pth": WheelFile(_pth(root))},
        info={
            **distribution.info,
            NOTE: _json({"digest": digest, "tree": str(tree)}),
            "direct_url.json": _json(direct_url),
        },
    )


def _pth(root: str) -> bytes:
    return os.fsencode(root) + b"\n"


def _member(root: Path, path: str) -> WheelFile:
    file = root / path
    if not file.resolve().is_relative_to(root):
        raise FatalError(
            f"{file} is a symlink that leaves its distribution; a wheel cannot hold it",
            code=ExitCode.CHECK_FAILED,
        )
    return WheelFile(file.read_bytes(), executable=bool(file.stat().st_mode & 0o100))


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()
