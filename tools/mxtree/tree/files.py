# SPDX-License-Identifier: Apache-2.0
"""The files of a folder as a sorted listing of mode, hash and path, and a digest of it."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree.errors import FatalError

if TYPE_CHECKING:
    from collections.abc import Iterator

# What Python and its tools leave behind when code in a tree is used; never part of it.
_IGNORED_FOLDERS = frozenset(
    {"__pycache__", ".git", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
_IGNORED_SUFFIXES = (".pyc", ".pyo", ".egg-info")


@dataclass(frozen=True)
class FileEntry:
    """One file: ``mode`` is git's (100644, 100755, 120000), ``sha256`` of its bytes in hex."""

    mode: str
    sha256: str


def ignore_rules() -> list[str]:
    """Return the same as rules of git: what `git status` and `git add` of a tree pass over."""
    rules = sorted(f"{name}/" for name in _IGNORED_FOLDERS if name != ".git")
    return rules + [f"*{suffix}" for suffix in _IGNORED_SUFFIXES]


def is_ignored(name: str) -> bool:
    """Return whether a file or folder of this name is a by-product, not content."""
    return name in _IGNORED_FOLDERS or name.endswith(_IGNORED_SUFFIXES)


def walk(root: Path) -> Iterator[str]:
    """Yield the path of every file and symlink below ``root``, relative, with ``/``, unsorted."""
    stack = [""]
    while stack:
        folder = stack.pop()
        with os.scandir(root / folder) as entries:
            for entry in entries:
                if is_ignored(entry.name):
                    continue
                path = f"{folder}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    stack.append(path + "/")
                else:
                    yield path


def git_mode(path: Path) -> str:
    """Return the mode git would record for a file or symlink."""
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return "120000"
    return "100755" if mode & stat.S_IXUSR else "100644"


def content(path: Path) -> bytes:
    """Return the bytes git would record: those of the file, or the target of a symlink."""
    return os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()


def scan(root: Path) -> dict[str, FileEntry]:
    """Return every file below ``root``, sorted by path."""
    paths = sorted(walk(root)) if root.is_dir() else []
    return {
        path: FileEntry(git_mode(root / path), hashlib.sha256(content(root / path)).hexdigest())
        for path in paths
    }


def digest(files: dict[str, FileEntry]) -> str:
    """Return the sha256, in hex, of a listing: same files, same digest on every machine."""
    lines = (f"{entry.mode} {entry.sha256} {path}\0" for path, entry in sorted(files.items()))
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def copy_files(source: Path, target: Path) -> dict[str, FileEntry]:
    """Copy the content of ``source`` to the new folder ``target`` and return its listing.

    Modes become 0644 or 0755 whatever the umask. Raises `FatalError` on a symlink: the copy would
    point outside the tree.
    """
    files = scan(source)
    target.mkdir(parents=True)
    for path, entry in files.items():
        if entry.mode == "120000":
            raise FatalError(
                f"{source / path} is a symlink; a tree must not depend on what it points to",
                hint=f"replace it by the file itself: cp --remove-destination $(readlink -f "
                f"{source / path}) {source / path}",
            )
        copy = target / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, copy)
        copy.chmod(int(entry.mode[-3:], 8))
    return files
