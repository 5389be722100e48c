# SPDX-License-Identifier: Apache-2.0
"""Ids of git objects, computed without git: an import knows beforehand what it must become."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from mxtree.git import IDENTITY_EMAIL, IDENTITY_NAME
from mxtree.upstreams.content import File

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Every import commit carries this date, older than any patch: 2026-01-01T00:00:00Z.
STAMP = f"{IDENTITY_NAME} <{IDENTITY_EMAIL}> 1767225600 +0000"


class _Folder(dict[bytes, "_Folder | File"]):
    pass


def tree_id(files: Sequence[File]) -> str:
    """Return the id (hex) of the git tree that `content.check`-ed files make."""
    root = _Folder()
    for file in files:
        *parents, name = file.path.split(b"/")
        node = root
        for parent in parents:
            below = node.setdefault(parent, _Folder())
            if isinstance(below, File):
                raise TypeError(f"{file.path!r} lies below a file")
            node = below
        node[name] = file
    return _tree(root).hex()


def commit_id(tree: str, message: str) -> str:
    """Return the id (hex) of the import commit of a tree."""
    text = f"tree {tree}\nauthor {STAMP}\ncommitter {STAMP}\n\n{message}"
    return _object("commit", text.encode()).hex()


def _tree(folder: _Folder) -> bytes:
    # git sorts a folder as if its name ended in a slash.
    rows = sorted(
        (name + b"/" if isinstance(node, _Folder) else name, *_row(name, node))
        for name, node in folder.items()
    )
    return _object("tree", b"".join(head + oid for _, head, oid in rows))


def _row(name: bytes, node: _Folder | File) -> tuple[bytes, bytes]:
    if isinstance(node, File):
        return node.mode + b" " + name + b"\0", _object("blob", node.data)
    return b"40000 " + name + b"\0", _tree(node)


def _object(kind: str, data: bytes) -> bytes:
    header = f"{kind} {len(data)}\0".encode()
    return hashlib.sha1(header + data, usedforsecurity=False).digest()
