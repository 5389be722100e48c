# SPDX-License-Identifier: Apache-2.0
"""The diff of a patch, byte for byte, as far as `git format-patch` writes it.

Why not a library: `unidiff` decodes text, splits lines at CR and form feed, and knows neither
binary hunks nor quoted paths; here a byte lost is another commit id. `parse_diff` raises
`UnusualDiffError` for everything it does not know exactly, and git itself takes over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from mxtree.series.binary import BinaryHunk, read_binary
from mxtree.series.hunk import HUNK_START, Hunk, read_hunk
from mxtree.series.lines import DamagedDiffError, Lines, UnusualDiffError
from mxtree.series.quoting import unquote

__all__ = [
    "Change",
    "DamagedDiffError",
    "FilePatch",
    "Hunk",
    "UnusualDiffError",
    "junk_lines",
    "parse_diff",
]

_INDEX = re.compile(rb"([0-9a-f]{7,40})\.\.([0-9a-f]{7,40})(?: ([0-7]{6}))?")
_MODES = {b"100644": 0o100644, b"100755": 0o100755, b"120000": 0o120000}
_EXTENDED = (
    *(b"old mode ", b"new mode ", b"deleted file mode ", b"new file mode "),
    *(b"copy from ", b"copy to ", b"rename from ", b"rename to "),
    *(b"similarity index ", b"dissimilarity index ", b"index "),
)
_SECTION = b"diff --git "
_PATCH_LIKE = (
    *(b"@@ -", b"--- ", b"+++ ", b"diff -", b"Index: "),
    *(b"GIT binary patch", b"Binary files ", b"Files "),
)

SYMLINK = 0o120000
NULL_ID = b"0" * 40


class Change(StrEnum):
    """What a section of a diff does to a path."""

    MODIFY = "modify"
    ADD = "add"
    DELETE = "delete"
    RENAME = "rename"
    COPY = "copy"


@dataclass(slots=True)
class FilePatch:
    """One `diff --git` section. Modes and ids are None where the section does not give them."""

    line: int
    change: Change
    old_path: bytes
    new_path: bytes
    old_mode: int | None = None
    new_mode: int | None = None
    old_id: bytes | None = None
    new_id: bytes | None = None
    hunks: list[Hunk] = field(default_factory=list)
    binary: BinaryHunk | None = None

    @property
    def paths(self) -> tuple[bytes, ...]:
        """The paths it reads and writes."""
        same = self.old_path == self.new_path
        return (self.new_path,) if same else (self.old_path, self.new_path)


def parse_diff(diff: bytes, first_line: int = 1) -> list[FilePatch]:
    """Return the sections of ``diff``, which begins at ``first_line`` of its file.

    Raises `UnusualDiffError` for a form that `git format-patch` does not write.
    """
    return _Parser(diff, first_line).parse()


def junk_lines(diff: bytes, first_line: int = 1) -> list[int]:
    """Return the lines that are part of no section, which git passes over.

    Raises `UnusualDiffError` as `parse_diff` does.
    """
    parser = _Parser(diff, first_line)
    parser.parse()
    return parser.junk


class _Parser:
    def __init__(self, diff: bytes, first_line: int) -> None:
        self._lines = Lines(diff, first_line)
        self.junk: list[int] = []

    def parse(self) -> list[FilePatch]:
        sections, lines = [], self._lines
        while not lines.is_at_end:
            line = lines.peek()
            if line.startswith(_SECTION):
                sections.append(self._section())
            elif line.startswith(_PATCH_LIKE):
                raise lines.unusual("text that git may read as a patch")
            else:
                self.junk.append(lines.number)
                lines.at += 1
        return sections

    def _section(self) -> FilePatch:
        line, names = self._lines.number, self._lines.peek()[len(_SECTION) :]
        self._lines.at += 1
        extended = self._extended()
        old, new = self._file_lines()
        patch = self._identify(line, names, extended, (old, new))
        if self._lines.peek() == b"GIT binary patch":
            self._lines.at += 1
            patch.binary = read_binary(self._lines)
        while self._lines.peek().startswith(HUNK_START):
            patch.hunks.append(read_hunk(self._lines))
        self._check_end(patch, has_names=old is not None)
        return patch

    def _check_end(self, patch: FilePatch, *, has_names: bool) -> None:
        if bool(patch.hunks) != has_names or (patch.hunks and patch.binary):
            raise self._lines.unusual("hunks and file names do not go together")
        says_something = patch.hunks or patch.binary or patch.new_mode is not None
        if patch.change is Change.MODIFY and not says_something:
            raise self._lines.unusual("the section changes nothing")
        rest = self._lines.peek()
        if patch.hunks and rest[:1] in {b" ", b"+", b"-"} and rest != b"-- ":
            reason = "the hunk above is longer than its header says: git would drop the rest"
            raise DamagedDiffError(reason, self._lines.number)

    def _extended(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        while True:
            line = self._lines.peek()
            key = next((key for key in _EXTENDED if line.startswith(key)), None)
            if key is None:
                return found
            if key in found:
                raise self._lines.unusual(f"a second {key.decode().strip()!r} line")
            found[key] = line[len(key) :]
            self._lines.at += 1

    def _file_lines(self) -> tuple[bytes | None, bytes | None]:
        """Return the names in the lines `--- a/x` and `+++ b/x`, b"" for /dev/null."""
        names: list[bytes] = []
        for mark, prefix in ((b"--- ", b"a/"), (b"+++ ", b"b/")):
            line = self._lines.peek()
            if not line.startswith(mark):
                break
            names.append(self._file_name(line[len(mark) :], prefix))
            self._lines.at += 1
        if not names:
            return None, None
        if len(names) != 2:
            raise self._lines.unusual("no +++ line")
        return names[0], names[1]

    def _file_name(self, text: bytes, prefix: bytes) -> bytes:
        quoted = unquote(text)
        name, tail = quoted or text.partition(b"\t")[::2]
        if name == b"/dev/null" and quoted is None and not tail:
            return b""
        # git writes a tab behind a name with a space in it, so that `patch` sees where it ends.
        if not name.startswith(prefix) or tail.strip(b"\t") or (quoted is None and b"\r" in name):
            raise self._lines.unusual("a file name that git does not write")
        return name[len(prefix) :]

    def _identify(
        self,
        line: int,
        names: bytes,
        extended: dict[bytes, bytes],
        files: tuple[bytes | None, bytes | None],
    ) -> FilePatch:
        change = self._change(extended)
        pair = None
        if change in {Change.RENAME, Change.COPY}:
            verb = change.value.encode()
            pair = (self._path(extended[verb + b" from "]), self._path(extended[verb + b" to "]))
        elif (name := files[0] or files[1]) is not None:
            pair = (name, name)
        old, new = _header_names(names, pair) or (b"", b"")
        expected = (b"" if change is Change.ADD else old, b"" if change is Change.DELETE else new)
        if not old or not new or files not in {(None, None), expected}:
            raise self._lines.unusual("the file names of the section contradict each other")
        patch = FilePatch(line, change, old, new)
        self._set_modes(patch, extended)
        return patch

    def _change(self, extended: dict[bytes, bytes]) -> Change:
        kinds = [
            change
            for change, keys in (
                (Change.ADD, (b"new file mode ",)),
                (Change.DELETE, (b"deleted file mode ",)),
                (Change.RENAME, (b"rename from ", b"rename to ")),
                (Change.COPY, (b"copy from ", b"copy to ")),
            )
            if any(key in extended for key in keys)
        ]
        if len(kinds) > 1 or (b"old mode " in extended) != (b"new mode " in extended):
            raise self._lines.unusual("extended header lines contradict each other")
        change = kinds[0] if kinds else Change.MODIFY
        both = {Change.RENAME, Change.COPY}
        if change in both and f"{change} to ".encode() not in extended:
            raise self._lines.unusual(f"no '{change} to' line")
        if change in both and f"{change} from ".encode() not in extended:
            raise self._lines.unusual(f"no '{change} from' line")
        return change

    def _path(self, text: bytes) -> bytes:
        quoted = unquote(text)
        if quoted is None:
            return text
        if quoted[1]:
            raise self._lines.unusual("text behind a quoted path")
        return quoted[0]

    def _set_modes(self, patch: FilePatch, extended: dict[bytes, bytes]) -> None:
        if b"index " in extended:
            match = _INDEX.fullmatch(extended[b"index "])
            if match is None:
                raise self._lines.unusual("malformed index line")
            patch.old_id, patch.new_id = match[1], match[2]
            if match[3] is not None:
                patch.old_mode = self._mode(match[3])
        for key in (b"old mode ", b"deleted file mode "):
            if key in extended:
                patch.old_mode = self._mode(extended[key])
        for key in (b"new mode ", b"new file mode "):
            if key in extended:
                patch.new_mode = self._mode(extended[key])

    def _mode(self, text: bytes) -> int:
        mode = _MODES.get(text)
        if mode is None:
            raise self._lines.unusual(f"mode {text.decode('ascii', 'replace')}")
        return mode


def _header_names(text: bytes, pair: tuple[bytes, bytes] | None) -> tuple[bytes, bytes] | None:
    """Return both paths of a `diff --git` line, or None when they are not ``pair``.

    Unquoted names may hold spaces; without ``pair`` they are two equal halves.
    """
    quoted = unquote(text)
    if quoted is not None:
        first, rest = quoted
    elif pair is not None:
        first = b"a/" + pair[0]
        rest = text[len(first) :] if text.startswith(first) else b""
    else:
        half = len(text) // 2
        first, rest = text[:half], text[half:]
    if not rest.startswith(b" "):
        return None
    tail = unquote(rest[1:])
    second = rest[1:] if tail is None else tail[0]
    if (tail is not None and tail[1]) or first[:2] != b"a/" or second[:2] != b"b/":
        return None
    found = (first[2:], second[2:])
    if found != pair if pair is not None else found[0] != found[1]:
        return None
    return found
