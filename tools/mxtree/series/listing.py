# SPDX-License-Identifier: Apache-2.0
"""The file `series`: one patch name a line, in the order of application."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from mxtree.series.problems import Problem

if TYPE_CHECKING:
    from pathlib import Path

SERIES_FILE = "series"

#: NNNN is the stable id of the patch, never its place in the order. The rest is whatever `git
#: format-patch` makes of a subject: cut at any character, nothing at all for a subject in kanji.
PATCH_NAME = re.compile(r"(?P<id>[0-9]{4})-(?P<slug>(?:[A-Za-z0-9._+][A-Za-z0-9._+-]*)?)\.patch")


class Entry(NamedTuple):
    """A patch name at its line of `series`."""

    line: int
    name: str


def read_listing(directory: Path) -> tuple[tuple[Entry, ...], tuple[Problem, ...]]:
    """Return the entries of ``directory/series`` in order, and everything wrong with the file.

    Entries that are malformed or repeated are left out of the first and named in the second.
    """
    path = directory / SERIES_FILE
    if not path.is_file() or path.is_symlink():
        what = "is not a regular file" if path.exists() else "is missing"
        fix = "write one patch name a line into it, in the order of application"
        return (), (Problem(path, 0, f"the series file {what}", fix, "series-missing"),)
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        line = 1 + path.read_bytes()[: error.start].count(b"\n")
        return (), (Problem(path, line, "not UTF-8", "save it as UTF-8", "series-encoding"),)
    return _parse(path, text)


def _parse(path: Path, text: str) -> tuple[tuple[Entry, ...], tuple[Problem, ...]]:
    entries: dict[str, Entry] = {}
    ids: dict[str, Entry] = {}
    problems = []
    for number, line in enumerate(text.split("\n"), 1):
        if (wrong := _malformed(line)) is not None:
            problems.append(Problem(path, number, *wrong))
            continue
        if not line or line.startswith("#"):
            continue
        entry = Entry(number, line)
        folded, patch_id = line.casefold(), line[:4]
        if (first := entries.get(folded)) is not None:
            problems.append(Problem(path, number, *_repeated(line, first)))
        elif (first := ids.get(patch_id)) is not None:
            message = f"id {patch_id} is already that of {first.name} in line {first.line}"
            problems.append(
                Problem(path, number, message, "rename one of the two files", "series-id")
            )
        else:
            entries[folded] = ids[patch_id] = entry
    if text and not text.endswith("\n"):
        # A merge driver that joins two lists (merge=union) would glue two names into one.
        last = text.count("\n") + 1
        message = "no newline at the end of the file"
        problems.append(Problem(path, last, message, "end the last line", "series-newline"))
    return tuple(entries.values()), tuple(problems)


def _repeated(name: str, first: Entry) -> tuple[str, str, str]:
    if name == first.name:
        return (
            f"{name} is already in line {first.line}",
            "delete one of the two",
            "series-duplicate",
        )
    message = f"{name} differs from {first.name} in line {first.line} only in case"
    return message, "rename one of the two files", "series-case"


def _malformed(line: str) -> tuple[str, str, str] | None:
    """Return what is wrong with one line (message, fix, rule), or None."""
    if line.startswith("\ufeff"):
        return "byte order mark", "save it without one", "series-encoding"
    if line.endswith("\r"):
        return "CRLF line end", "save it with LF line ends", "series-crlf"
    if any(ord(c) < 32 or ord(c) == 127 for c in line):
        return f"control character in {line!r}", "delete it", "series-control"
    if line != line.rstrip():
        return f"white space at the end of {line!r}", "delete it", "series-space"
    if not line or line.startswith("#") or PATCH_NAME.fullmatch(line):
        return None
    return _malformed_name(line)


def _malformed_name(line: str) -> tuple[str, str, str]:
    first, _, rest = line.strip().partition(" ")
    if "/" in line or "\\" in line:
        return (
            f"{line!r} names a path",
            "patches lie beside their series: write the file name alone",
            "series-path",
        )
    if rest.lstrip().startswith("-"):
        message = f"option {rest.strip()!r} after {first}"
        return message, "every patch applies with -p1: delete the option", "series-option"
    if rest.lstrip().startswith("#"):
        message = f"comment after {first}"
        return message, "give the comment a line of its own", "series-comment"
    fix = "name it NNNN-name.patch: four digits, then letters, digits, '.', '_', '+', '-'"
    return f"{line!r} is not the name of a patch", fix, "series-name"
