# SPDX-License-Identifier: Apache-2.0
"""Read a local directory: its files as they are, whatever git would ignore or convert."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from mxtree.errors import FatalError
from mxtree.upstreams.content import EXECUTABLE, REGULAR, SYMLINK, File, check, refuse, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def read_folder(path: Path) -> list[File]:
    """Return every file below a directory except in ``.git``; empty folders do not count.

    Raises `FatalError` when it cannot be read, is empty, or holds sockets, devices, pipes or
    symbolic links that lead outside.
    """
    try:
        found = sorted(_walk(path, b""))
        odd = [name for name, mode in found if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode))]
        refuse(str(path), [f"{shown(name)}: neither file nor symbolic link" for name in odd])
        files = [_read(path, name, mode) for name, mode in found]
    except OSError as error:
        raise FatalError(f"{error.filename!r} cannot be read: {error.strerror}") from error
    if not files:
        raise FatalError(f"{path} holds no files")
    check(files, str(path))
    return files


def _walk(folder: Path, below: bytes) -> Iterator[tuple[bytes, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = below + os.fsencode(entry.name)
            if entry.name == ".git":
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(folder / entry.name, name + b"/")
            else:
                yield name, entry.stat(follow_symlinks=False).st_mode


def _read(root: Path, name: bytes, mode: int) -> File:
    path = root / os.fsdecode(name)
    if stat.S_ISLNK(mode):
        # Path.readlink() would turn ./a into a.
        return File(name, SYMLINK, os.fsencode(os.readlink(path)))  # noqa: PTH115
    return File(name, EXECUTABLE if mode & stat.S_IXUSR else REGULAR, path.read_bytes())
