# SPDX-License-Identifier: Apache-2.0
"""Files as git sees them: path, mode, bytes; which paths are refused; the id of their tree."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

REGULAR = b"100644"
EXECUTABLE = b"100755"
SYMLINK = b"120000"

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class File:
    """One file, executable or symbolic link; ``data`` of a link is its target."""

    path: bytes
    mode: bytes
    data: bytes


def refuse(origin: str, problems: Sequence[str]) -> None:
    """Raise `FatalError` that lists the members that must not be unpacked, if there are any."""
    if problems:
        more = len(problems) - _SHOWN
        raise FatalError(
            f"{origin} holds {len(problems)} member(s) that mxtree does not unpack",
            details=[*problems[:_SHOWN], *([f"... and {more} more"] if more > 0 else [])],
            code=ExitCode.CHECK_FAILED,
        )


def check(files: Sequence[File], origin: str) -> None:
    """Refuse paths and links that could lead outside, and paths that cannot exist together.

    Raises `FatalError` that names each.
    """
    refuse(origin, [f"{shown(file.path)}: {why}" for file, why in _problems(files)])


def shown(path: bytes) -> str:
    """Return a path for a message: control characters and foreign bytes escaped."""
    text = path.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _problems(files: Sequence[File]) -> Iterator[tuple[File, str]]:
    links = {file.path for file in files if file.mode == SYMLINK}
    seen: set[bytes] = set()
    for file in files:
        if why := path_problem(file.path):
            yield file, why
        elif file.path in seen:
            yield file, "listed twice"
        elif file.mode == SYMLINK and (why := _target_problem(file)):
            yield file, why
        seen.add(file.path)
    for file in files:
        if parent := next((p for p in _parents(file.path) if p in seen), None):
            kind = "symbolic link" if parent in links else "file"
            yield file, f"lies below {shown(parent)}, which is a {kind}"


def path_problem(path: bytes) -> str | None:
    """Return why a path must not be unpacked, or None."""
    if path.startswith(b"/"):
        return "absolute path"
    if b"\0" in path:
        return "NUL in the path"
    for part in path.split(b"/"):
        if part in {b"", b".", b".."}:
            return f"{part.decode()!r} in the path"
        if part.lower() in {b".git", b"git~1"}:
            return "git's own folder"
    return None


def _target_problem(link: File) -> str | None:
    if link.path.rpartition(b"/")[2].lower() == b".gitmodules":
        return "symbolic link that git does not check out"
    if not link.data or b"\0" in link.data:
        return "symbolic link without a usable target"
    if link.data.startswith(b"/"):
        return f"symbolic link to the absolute path {shown(link.data)}"
    # Walked part by part: `a/../..` is outside although its normal form may not be.
    depth = link.path.count(b"/")
    for part in link.data.split(b"/"):
        depth += {b"..": -1, b".": 0, b"": 0}.get(part, 1)
        if depth < 0:
            return f"symbolic link to {shown(link.data)}, outside the tree"
    return None


def _parents(path: bytes) -> Iterator[bytes]:
    while path := posixpath.dirname(path):
        yield path
