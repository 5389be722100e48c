# SPDX-License-Identifier: Apache-2.0
"""Read a source distribution (`.tar.gz`): its files below the one top-level folder."""

from __future__ import annotations

import tarfile
import zlib
from typing import TYPE_CHECKING

from mxtree.errors import ExitCode, FatalError
from mxtree.upstreams.content import EXECUTABLE, REGULAR, SYMLINK, File, path_problem, refuse, shown

if TYPE_CHECKING:
    from pathlib import Path

_ENCODING = "utf-8"
_ERRORS = "surrogateescape"


def read_sdist(path: Path) -> list[File]:
    """Return the files of an sdist, paths relative to its top-level folder, bytes untouched.

    Raises `FatalError` when it is no tar file, has no single top-level folder, or holds devices,
    hard links, or paths that are absolute or climb.
    """
    try:
        with tarfile.open(path, "r:gz", encoding=_ENCODING, errors=_ERRORS) as archive:
            members = archive.getmembers()
            _refuse_members(path.name, members)
            found = [_file(archive, member) for member in members if not member.isdir()]
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise FatalError(
            f"{path} is not a readable .tar.gz: {error}", code=ExitCode.CHECK_FAILED
        ) from error
    return _below_top(path.name, found)


def _raw(name: str) -> bytes:
    return name.encode(_ENCODING, _ERRORS).removeprefix(b"./")


def _refuse_members(origin: str, members: list[tarfile.TarInfo]) -> None:
    problems = []
    for member in members:
        kind = next((what for test, what in _REFUSED if test(member)), None)
        why = kind or path_problem(_raw(member.name)) if member.name != "." else None
        if why:
            problems.append(f"{shown(_raw(member.name))}: {why}")
    refuse(origin, problems)


_REFUSED = (
    (tarfile.TarInfo.islnk, "hard link"),
    (tarfile.TarInfo.ischr, "device"),
    (tarfile.TarInfo.isblk, "device"),
    (tarfile.TarInfo.isfifo, "named pipe"),
)


def _file(archive: tarfile.TarFile, member: tarfile.TarInfo) -> File:
    path = _raw(member.name)
    if member.issym():
        return File(path, SYMLINK, member.linkname.encode(_ENCODING, _ERRORS))
    stream = archive.extractfile(member)
    data = stream.read() if stream else b""
    return File(path, EXECUTABLE if member.mode & 0o100 else REGULAR, data)


def _below_top(origin: str, files: list[File]) -> list[File]:
    tops = {file.path.partition(b"/")[0] for file in files}
    stray = next((file.path for file in files if b"/" not in file.path), None)
    if len(tops) != 1 or stray is not None:
        has = shown(stray) if stray else ", ".join(sorted(shown(top) for top in tops)) or "nothing"
        raise FatalError(
            f"{origin} is no source distribution: it needs one top-level folder, has {has}",
            code=ExitCode.CHECK_FAILED,
        )
    start = len(tops.pop()) + 1
    return [File(file.path[start:], file.mode, file.data) for file in files]
