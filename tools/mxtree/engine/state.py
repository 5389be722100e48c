# SPDX-License-Identifier: Apache-2.0
"""A tree in memory: every path with its mode and content, changed patch by patch."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxtree.engine.blob import Blob, StoredBlob

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mxtree.series.borrow import BorrowedObjects

GITLINK = 0o160000

#: Modes as they stand in tree objects of today; very old ones also have 100664.
_MODES = frozenset({b"40000", b"100644", b"100755", b"120000", b"160000"})
_TREE_ENTRY = re.compile(rb"([0-7]+) [^\0]+\0.{20}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the tree."""

    mode: int
    blob: Blob


@dataclass(frozen=True, slots=True)
class Edit:
    """What one patch does to the tree: paths to remove, then entries to put."""

    removed: frozenset[bytes]
    put: Mapping[bytes, Entry]


class TreeState:
    """The paths of a commit's tree, and what the patches so far made of them."""

    def __init__(self, private: BorrowedObjects, commit: str) -> None:
        self._private = private
        self._commit = commit
        self._contents: dict[str, bytes] = {}
        self._entries: dict[bytes, Entry] = {}
        self._folders: Counter[bytes] | None = None
        #: Which patch (by name) touched a path last.
        self.touched_by: dict[bytes, str] = {}
        listing = private.git("ls-tree", "-r", "-z", "--full-tree", commit)
        for row in listing.split(b"\0")[:-1]:
            head, path = row.split(b"\t", 1)
            mode, _, oid = head.split(b" ")
            self._entries[path] = self._stored(mode, oid)

    def _stored(self, mode: bytes, oid: bytes) -> Entry:
        return Entry(int(mode, 8), StoredBlob(oid.decode("ascii"), self._load))

    def _load(self, oid: str) -> bytes:
        content = self._contents.get(oid)
        return self._private.git("cat-file", "blob", oid) if content is None else content

    def prefetch(self, paths: Iterable[bytes]) -> bool:
        """Read what ``paths`` need with one git process: their content, and their folders.

        Return whether a mode occurs in those folders that git itself rewrites (100664), unlike
        fast-import.
        """
        wanted = self._oids(paths) | self._folder_names(paths)
        out = self._private.git("cat-file", "--batch", stdin=b"".join(sorted(wanted)))
        is_legacy = False
        for oid, kind, content in _read_batch(out):
            if kind == b"blob":
                self._contents[oid.decode("ascii")] = content
            elif kind == b"tree":
                modes = {match[1] for match in _TREE_ENTRY.finditer(content)}
                is_legacy = is_legacy or not modes <= _MODES
        return is_legacy

    def _oids(self, paths: Iterable[bytes]) -> set[bytes]:
        entries = [self._entries[path] for path in paths if path in self._entries]
        return {
            b"%s\n" % entry.blob.oid.encode("ascii") for entry in entries if entry.mode != GITLINK
        }

    def _folder_names(self, paths: Iterable[bytes]) -> set[bytes]:
        folders = {b""}.union(*(parents(path) for path in paths))
        commit = self._commit.encode("ascii")
        return {b"%s:%s\n" % (commit, folder) for folder in folders if b"\n" not in folder}

    def get(self, path: bytes) -> Entry | None:
        return self._entries.get(path)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._entries)

    def is_folder(self, path: bytes) -> bool:
        """Return whether any file lies below ``path``."""
        if self._folders is None:
            self._folders = Counter(folder for name in self._entries for folder in parents(name))
        return self._folders[path] > 0

    def apply(self, edit: Edit, patch_name: str) -> None:
        """Make the edit of the patch called ``patch_name``."""
        for path in edit.removed:
            self._remove(path)
        for path, entry in edit.put.items():
            self._put(path, entry)
        for path in (*edit.removed, *edit.put):
            self.touched_by[path] = patch_name

    def _put(self, path: bytes, entry: Entry) -> None:
        if self._folders is not None and path not in self._entries:
            self._folders.update(parents(path))
        self._entries[path] = entry

    def _remove(self, path: bytes) -> None:
        if self._folders is not None:
            self._folders.subtract(parents(path))
        del self._entries[path]

    def reload(self, old: str, new: str, patch_name: str) -> frozenset[bytes]:
        """Take over what differs between two commits; return the paths."""
        out = self._private.git(
            "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new
        )
        fields = out.split(b"\0")[:-1]
        put, removed = {}, set()
        for info, path in zip(fields[::2], fields[1::2], strict=True):
            _, mode, _, oid, status = info.split(b" ")
            if status == b"D":
                removed.add(path)
            else:
                put[path] = self._stored(mode, oid)
        self.apply(Edit(frozenset(removed), put), patch_name)
        return frozenset(fields[1::2])


def parents(path: bytes) -> Iterator[bytes]:
    """Yield the folders above ``path``, the outermost first."""
    at = path.find(b"/")
    while at >= 0:
        yield path[:at]
        at = path.find(b"/", at + 1)


def _read_batch(out: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield (id, type, content) of each object in the answer; type "missing" has no content."""
    at = 0
    while at < len(out):
        end = out.index(b"\n", at)
        head = out[at:end].rsplit(b" ", 2)
        if head[-1] == b"missing":
            at = end + 1
            continue
        oid, kind, size = head
        at = end + 2 + int(size)
        yield oid, kind, out[end + 1 : at - 1]
