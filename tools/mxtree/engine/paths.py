# SPDX-License-Identifier: Apache-2.0
"""Refuse a path that leads out of the tree or into git's own folder, in any spelling."""

from __future__ import annotations

import re

# HFS+ ignores these code points in names, so ".g\u200cit" is ".git" there.
_HFS_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")

# NTFS: git~1 is the short name of .git; trailing dots and blanks and a stream name are cut.
_GIT_FOLDER = re.compile(r"(?:\.git|git~[0-9]+)[ .]*(?::.*)?", re.IGNORECASE)

_DRIVE = re.compile(rb"[A-Za-z]:")


def wrong_path(path: bytes) -> str | None:
    """Return why a patch may not touch ``path``, or None when it may."""
    if not path or path.startswith((b"/", b"\\")) or _DRIVE.match(path):
        return "is not inside the tree (absolute or empty)"
    for part in path.split(b"/"):
        if part in {b"", b"."}:
            return "has an empty or '.' component"
        if part == b"..":
            return "leads out of the tree ('..')"
    for part in re.split(rb"[/\\]", path):
        if part == b"..":
            return "leads out of the tree on Windows ('..')"
        name = _HFS_IGNORED.sub("", part.decode("utf-8", "surrogateescape"))
        if _GIT_FOLDER.fullmatch(name):
            return "lies in git's own folder (.git, or what a file system takes for it)"
    return None
