# SPDX-License-Identifier: Apache-2.0
"""Check every path of every patch before the first one is applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.engine.paths import wrong_path
from mxtree.errors import FatalError
from mxtree.series.diff import SYMLINK, DamagedDiffError, FilePatch, UnusualDiffError, parse_diff
from mxtree.series.problems import show_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mxtree.engine.edit import BeyondSymlinkError
    from mxtree.series import Patch


def parse_sections(patch: Patch) -> list[FilePatch] | None:
    """Return the sections of a patch, or None when git itself must read it.

    Raises `FatalError` when a path leads out of the tree, or when git would apply a hunk in part.
    """
    if patch.mail is None:
        return None
    try:
        sections = parse_diff(patch.mail.diff, patch.mail.diff_line)
    except DamagedDiffError as error:
        raise FatalError(
            f"{show_path(patch.path)}:{error.line}: {error.reason}",
            hint="write the patch again with `git format-patch` instead of editing it by hand",
        ) from error
    except UnusualDiffError:
        return None
    if not sections and patch.mail.diff.strip():
        return None
    for section in sections:
        _check_paths(patch, section)
    return sections


def _check_paths(patch: Patch, section: FilePatch) -> None:
    for path in section.paths:
        wrong = wrong_path(path)
        if wrong is not None:
            raise unsafe(patch, section.line, path, wrong)
    is_link = SYMLINK in {section.new_mode, section.old_mode}
    if is_link and section.new_path.rpartition(b"/")[2].lower() == b".gitmodules":
        raise unsafe(patch, section.line, section.new_path, "must not be a symbolic link")


def check_changed(patch: Patch, paths: Iterable[bytes]) -> None:
    """Check the paths that git changed for a patch that only git could read."""
    for path in sorted(paths):
        wrong = wrong_path(path)
        if wrong is not None:
            raise unsafe(patch, 1, path, wrong)


def beyond_symlink(patch: Patch, error: BeyondSymlinkError, made_by: str | None) -> FatalError:
    """Return the error for a path through a symbolic link, naming who made the link."""
    link = error.link.decode("utf-8", "backslashreplace")
    origin = f"patch {made_by}" if made_by else "the upstream release"
    wrong = f"leads through the symbolic link {link}, made by {origin}"
    return unsafe(patch, error.section.line, error.path, wrong)


def unsafe(patch: Patch, line: int, path: bytes, wrong: str) -> FatalError:
    """Return the error for a path that no patch may touch."""
    shown = path.decode("utf-8", "backslashreplace")
    return FatalError(
        f"{show_path(patch.path)}:{line}: the path {shown!r} {wrong}",
        details=["nothing was applied: a patch may write inside its own tree only"],
        hint=f"correct the path, or take {patch.name} out of {show_path(patch.path.parent)}/series",
    )


def names_of(sections: Iterable[Sequence[FilePatch] | None]) -> set[bytes]:
    """Return every path that the sections read or write."""
    return {path for group in sections for section in group or () for path in section.paths}
