# SPDX-License-Identifier: Apache-2.0
"""Load a series directory, strictly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxtree.errors import FatalError
from mxtree.series.listing import PATCH_NAME, SERIES_FILE, Entry, read_listing
from mxtree.series.patch import Patch
from mxtree.series.problems import Problem, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True)
class Series:
    """The patches of one directory in the order of application."""

    directory: Path
    patches: tuple[Patch, ...]


def load_series(directory: Path) -> Series:
    """Return the series in ``directory``.

    Raises `FatalError` with every problem at file:line: a malformed list, a patch that is listed
    twice, missing or not listed, and a file that is not one readable patch mail. Header fields are
    the business of `mxtree lint`.
    """
    series, problems = read_series(directory)
    refuse(directory, problems)
    return series


def read_series(directory: Path) -> tuple[Series, tuple[Problem, ...]]:
    """Return the patches that can be read, and every problem found on the way."""
    if not directory.is_dir():
        fix = f"make the folder and a file {SERIES_FILE!r} in it"
        missing = Problem(directory, 0, "there is no such folder", fix, "series-missing")
        return Series(directory, ()), (missing,)
    entries, problems = read_listing(directory)
    patches: list[Patch] = []
    found = [*problems, *_strays(directory, entries)]
    for entry in entries:
        patch, wrong = _read_patch(directory, entry)
        if patch is not None:
            patches.append(patch)
        found += wrong
    return Series(directory, tuple(patches)), tuple(sorted(found))


def _strays(directory: Path, entries: Iterable[Entry]) -> list[Problem]:
    known = {SERIES_FILE, *(entry.name for entry in entries)}
    folded = {name.casefold(): name for name in known}
    strays = []
    for path in sorted(directory.iterdir()):
        if path.name in known:
            continue
        twin = folded.get(path.name.casefold())
        message = f"differs from {twin} only in case" if twin else f"is not listed in {SERIES_FILE}"
        fix = "list it or delete it" if PATCH_NAME.fullmatch(path.name) else "delete or move it"
        strays.append(Problem(path, 0, message, fix, "series-stray"))
    return strays


def _read_patch(directory: Path, entry: Entry) -> tuple[Patch | None, list[Problem]]:
    path, at = directory / entry.name, directory / SERIES_FILE
    if not path.exists() or path.is_symlink() or not path.is_file():
        what = "is not a regular file" if path.exists() or path.is_symlink() else "does not exist"
        fix = "restore the file or delete the line"
        return None, [Problem(at, entry.line, f"{entry.name} {what}", fix, "series-missing-patch")]
    patch = Patch(path, entry.name[:4], entry.name, path.read_bytes())
    return patch, _check_mail(patch)


def _check_mail(patch: Patch) -> list[Problem]:
    """Return why a file is not one patch mail; plain mails (the usual case) cost nothing here."""
    if patch.mail is not None:
        return []
    if not patch.raw.strip():
        fix = "restore it from git, or delete it and its line in series"
        return [Problem(patch.path, 1, "the file is empty", fix, "patch-mail")]
    head = patch.raw.partition(b"\n\n")[0]
    if b"\r\n" in patch.raw[: len(head) + 1]:
        fix = "restore it from git with *.patch -text in .gitattributes"
        return [Problem(patch.path, 1, "CRLF line ends in the mail header", fix, "patch-crlf")]
    if not patch.raw.endswith(b"\n"):
        last = 1 + patch.raw.count(b"\n")
        fix = "restore the last line end: git may misread the last hunk"
        return [Problem(patch.path, last, "no newline at the end", fix, "patch-newline")]
    try:
        _ = patch.message
    except FatalError as error:
        why = "; ".join([error.message.removeprefix(f"{patch.path} "), *error.details])
        return [Problem(patch.path, 1, why, error.hint or "", "patch-mail")]
    return []
