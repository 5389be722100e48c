# SPDX-License-Identifier: Apache-2.0
"""One patch against a tree in memory: what it removes and puts, or why it does not fit.

The order of things is that of `git apply`: every section reads the tree as it was before the
patch; a path may be created when it is free or when the same patch deletes it or moves it away.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from stat import S_IFMT
from typing import TYPE_CHECKING

from mxtree.engine.blob import Blob, NewBlob
from mxtree.engine.hunks import LooseMatchError, NoMatchError, apply_hunks
from mxtree.engine.state import GITLINK, Edit, Entry, TreeState, parents
from mxtree.series.binary import BadDeltaError
from mxtree.series.diff import NULL_ID, SYMLINK, Change, FilePatch

if TYPE_CHECKING:
    from collections.abc import Sequence

_READS = frozenset({Change.MODIFY, Change.DELETE, Change.RENAME, Change.COPY})
_LEAVES = frozenset({Change.DELETE, Change.RENAME})
_CREATES = frozenset({Change.ADD, Change.RENAME, Change.COPY})


class Why(StrEnum):
    """Why a section does not fit the tree."""

    MISSING = "the file does not exist"
    EXISTS = "the file exists already"
    WRONG_TYPE = "the file is of another type"
    HUNK = "a hunk fits nowhere"
    NOT_EMPTY = "the patch deletes the file but not all of its lines"
    OTHER_BINARY = "the binary file has other content"


class MismatchError(Exception):
    """A section of a patch that does not fit; ``lines`` is the file as the hunk met it."""

    def __init__(
        self, why: Why, section: FilePatch, hunk: int = 0, lines: Sequence[bytes] = ()
    ) -> None:
        super().__init__(why)
        self.why = why
        self.section = section
        self.hunk = hunk
        self.lines = lines


class AskGitError(Exception):
    """A case whose rules are git's alone."""


class BeyondSymlinkError(Exception):
    """A path that leads through a symbolic link of the tree."""

    def __init__(self, path: bytes, link: bytes, section: FilePatch) -> None:
        super().__init__(path, link)
        self.path = path
        self.link = link
        self.section = section


@dataclass
class _Plan:
    """What the sections so far do, and what the whole patch will take away."""

    leaving: frozenset[bytes]
    removed: set[bytes] = field(default_factory=set)
    put: dict[bytes, Entry] = field(default_factory=dict)
    offset: int = 0


def make_edit(tree: TreeState, sections: Sequence[FilePatch]) -> tuple[Edit, int]:
    """Return what a patch does to ``tree``, and the largest offset of a hunk from its place.

    Raises `MismatchError` when it does not fit, `BeyondSymlinkError` when a path leads through a
    symbolic link, and `AskGitError` when only git can tell. The tree is not changed.
    """
    plan = _Plan(frozenset(section.old_path for section in sections if section.change in _LEAVES))
    for section in sections:
        _check_links(tree, section, plan)
        _add(tree, section, plan)
    edit = Edit(frozenset(plan.removed), plan.put)
    for section in sections:
        if section.change in _CREATES:
            _check_place(tree, section, edit)
    return edit, plan.offset


def _add(tree: TreeState, section: FilePatch, plan: _Plan) -> None:
    old = _preimage(tree, section) if section.change in _READS else None
    new_path = section.new_path
    if section.change in _CREATES and tree.get(new_path) and new_path not in plan.leaving:
        raise MismatchError(Why.EXISTS, section)
    blob = _postimage(section, old, plan)
    if section.change in _LEAVES:
        if section.old_path in plan.removed or section.old_path in plan.put:
            raise AskGitError
        plan.removed.add(section.old_path)
    if section.change is Change.DELETE:
        return
    if new_path in plan.put or (section.change is Change.MODIFY and new_path in plan.leaving):
        raise AskGitError
    mode = section.new_mode or (old.mode if old else 0)
    if old and S_IFMT(mode) != S_IFMT(old.mode):
        raise AskGitError
    plan.put[new_path] = Entry(mode, blob)


def _preimage(tree: TreeState, section: FilePatch) -> Entry:
    entry = tree.get(section.old_path)
    if entry is None:
        raise MismatchError(Why.MISSING, section)
    if entry.mode == GITLINK:
        raise AskGitError
    if section.old_mode is not None and S_IFMT(section.old_mode) != S_IFMT(entry.mode):
        raise MismatchError(Why.WRONG_TYPE, section)
    return entry


def _postimage(section: FilePatch, old: Entry | None, plan: _Plan) -> Blob:
    before: Blob = old.blob if old else NewBlob(content=b"")
    if section.binary is not None:
        return _binary_postimage(section, before)
    if not section.hunks:
        after = before
    else:
        try:
            placed = apply_hunks(before.lines, section.hunks)
        except NoMatchError as error:
            raise MismatchError(Why.HUNK, section, error.index, error.lines) from error
        except LooseMatchError as error:
            raise AskGitError from error
        plan.offset = max(plan.offset, placed.offset)
        after = NewBlob(lines=placed.lines)
    if section.change is Change.DELETE and after.content:
        raise MismatchError(Why.NOT_EMPTY, section, lines=after.lines)
    return after


def _binary_postimage(section: FilePatch, before: Blob) -> Blob:
    """Apply a binary hunk; git checks the whole content before and after by its id."""
    old_id, new_id, hunk = section.old_id, section.new_id, section.binary
    if hunk is None or old_id is None or new_id is None or len(old_id) != 40 or len(new_id) != 40:
        raise AskGitError
    if section.change is not Change.ADD and before.oid != old_id.decode("ascii"):
        raise MismatchError(Why.OTHER_BINARY, section)
    if new_id == NULL_ID:
        return NewBlob(content=b"")
    try:
        after = NewBlob(content=hunk.apply(before.content))
    except BadDeltaError as error:
        raise AskGitError from error
    if after.oid != new_id.decode("ascii"):
        raise AskGitError
    return after


def _check_links(tree: TreeState, section: FilePatch, plan: _Plan) -> None:
    for path in section.paths:
        if tree.get(path) is None:
            for folder in parents(path):
                entry = tree.get(folder)
                if entry and entry.mode == SYMLINK and folder not in plan.leaving:
                    raise BeyondSymlinkError(path, folder, section)


def _check_place(tree: TreeState, section: FilePatch, edit: Edit) -> None:
    """Refuse a new path below a link; leave a clash of file and folder to git."""
    for folder in parents(section.new_path):
        above = edit.put.get(folder) or (None if folder in edit.removed else tree.get(folder))
        if above and above.mode == SYMLINK:
            raise BeyondSymlinkError(section.new_path, folder, section)
        if above:
            raise AskGitError
    if tree.is_folder(section.new_path):
        raise AskGitError
