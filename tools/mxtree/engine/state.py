# SPDX-License-Identifier: Apache-2.0
"""A tree in memory: every path with its mode and content, changed patch by patch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxtree.engine.blob import Blob, StoredBlob
from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mxtree.series.borrow import BorrowedObjects

GITLINK = 0o160000
_MODES = frozenset({0o100644, 0o100755, 0o120000, GITLINK})


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

    @property
    def has_legacy_modes(self) -> bool:
        """Whether a mode occurs that git itself rewrites whenever it writes the tree (100664)."""
        return any(entry.mode not in _MODES for entry in self._entries.values())

    def prefetch(self, paths: Iterable[bytes]) -> None:
        """Read the content of ``paths``, as far as they exist, with one git process."""
        entries = [self._entries[path] for path in paths if path in self._entries]
        oids = {entry.blob.oid for entry in entries if entry.mode != GITLINK}
        if oids:
            request = "".join(f"{oid}\n" for oid in sorted(oids)).encode("ascii")
            self._contents |= _read_batch(self._private.git("cat-file", "--batch", stdin=request))

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


def _read_batch(out: bytes) -> dict[str, bytes]:
    contents = {}
    at = 0
    while at < len(out):
        end = out.index(b"\n", at)
        oid, kind, *size = out[at:end].split(b" ")
        if kind != b"blob":
            raise FatalError(
                f"object {oid.decode('ascii')} of the base should be a blob but is {kind.decode()}",
                hint="the repository is damaged or partial: `mxtree fetch` imports it again",
                code=ExitCode.COULD_NOT_CHECK,
            )
        start, length = end + 1, int(size[0])
        contents[oid.decode("ascii")] = out[start : start + length]
        at = start + length + 1
    return contents
