# SPDX-License-Identifier: Apache-2.0
"""Read a wheel: all its files, after its RECORD has vouched for each."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import stat
import zipfile
import zlib
from typing import TYPE_CHECKING

from mxtree.errors import ExitCode, FatalError
from mxtree.upstreams.content import EXECUTABLE, REGULAR, SYMLINK, File, path_problem, refuse, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_UNIX = 3
_UTF8_FLAG = 0x800
# RECORD cannot hold its own hash; signatures are made after it.
_UNHASHED = (".dist-info/RECORD", ".dist-info/RECORD.jws", ".dist-info/RECORD.p7s")


def read_wheel(path: Path) -> list[File]:
    """Return the files of a wheel, the dist-info folder included, bytes untouched.

    Raises `FatalError` when it is no zip file, when a path is absolute or climbs, or when RECORD
    does not list exactly the files with their hashes.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
            files = [_file(archive, info) for info in members]
    except (zipfile.BadZipFile, EOFError, zlib.error, OSError, NotImplementedError) as error:
        raise FatalError(
            f"{path} is not a readable wheel: {error}", code=ExitCode.CHECK_FAILED
        ) from error
    bad = [(file, path_problem(file.path)) for file in files]
    refuse(path.name, [f"{shown(file.path)}: {why}" for file, why in bad if why])
    _verify_record(path.name, files)
    return files


def _file(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> File:
    encoding = "utf-8" if info.flag_bits & _UTF8_FLAG else "cp437"
    mode = info.external_attr >> 16 if info.create_system == _UNIX else 0
    kind = EXECUTABLE if mode & stat.S_IXUSR else REGULAR
    if stat.S_ISLNK(mode):
        kind = SYMLINK
    return File(info.orig_filename.encode(encoding), kind, archive.read(info))


def _verify_record(origin: str, files: list[File]) -> None:
    records = [file for file in files if _name(file).endswith(".dist-info/RECORD")]
    if len(records) != 1:
        raise FatalError(f"{origin} has {len(records)} RECORD files", code=ExitCode.CHECK_FAILED)
    problems = list(_differences(files, _parse_record(origin, records[0])))
    if problems:
        raise FatalError(
            f"{origin} is not what its RECORD says", details=problems, code=ExitCode.CHECK_FAILED
        )


def _name(file: File) -> str:
    return file.path.decode("utf-8", "surrogateescape")


def _parse_record(origin: str, record: File) -> dict[str, tuple[str, str]]:
    """Return ``algorithm`` and ``digest`` of each path that RECORD lists."""
    try:
        text = record.data.decode("utf-8")
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
        return {row[0]: (*row[1].partition("=")[::2],) for row in rows}
    except (UnicodeDecodeError, csv.Error, IndexError) as error:
        raise FatalError(
            f"{origin}: {_name(record)} cannot be read: {error}", code=ExitCode.CHECK_FAILED
        ) from error


def _differences(files: list[File], record: dict[str, tuple[str, str]]) -> Iterator[str]:
    for file in files:
        name = _name(file)
        if name.endswith(_UNHASHED):
            continue
        algorithm, expected = record.get(name, ("", ""))
        if name not in record:
            yield f"{shown(file.path)}: not listed"
        elif algorithm not in {"sha256", "sha384", "sha512"}:
            yield f"{shown(file.path)}: listed without a sha256"
        elif (found := _digest(algorithm, file.data)) != expected:
            yield f"{shown(file.path)}: expected {algorithm} {expected}, got {found}"
    for name in record.keys() - {_name(file) for file in files}:
        yield f"{name}: listed, but not there"


def _digest(algorithm: str, data: bytes) -> str:
    digest = hashlib.new(algorithm, data).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
