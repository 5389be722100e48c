# SPDX-License-Identifier: Apache-2.0
"""Say on one screen why a patch does not apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.engine.edit import MismatchError, Why
from mxtree.engine.excerpt import best_place, excerpt, invisible_reason
from mxtree.engine.model import ConflictError
from mxtree.series.problems import show_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from mxtree.engine.state import TreeState
    from mxtree.git import GitResult
    from mxtree.series import Patch
    from mxtree.series.diff import FilePatch

#: Lines of git's own words that are shown.
_SAID = 12


def conflict_error(patch: Patch, error: MismatchError, tree: TreeState) -> ConflictError:
    """Return the error for a section that does not fit ``tree``."""
    section = error.section
    path = _show(section.new_path if error.why is Why.EXISTS else section.old_path)
    line = section.hunks[error.hunk].line if error.why is Why.HUNK else section.line
    rows = [
        f"patch   {show_path(patch.path)}:{line}",
        f"file    {path}{_last_touch(tree, section)}",
    ]
    rows += _DETAILS[error.why](error, tree)
    return ConflictError(
        f"patch {patch.name} does not apply to {path}: {error.why}",
        patch=patch,
        details=rows,
        hint=_next_command(patch),
    )


def refused_by_git(patch: Patch, result: GitResult, commits: int) -> ConflictError:
    """Return the error for a patch that only git could judge."""
    said = (result.stdout + result.stderr).decode("utf-8", "replace").splitlines()
    errors = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
    useful = errors or [line for line in said if line.strip() and not line.startswith("hint:")]
    where = f"patch   {show_path(patch.path)}"
    count = [] if result.returncode else [f"it would become {commits} commits instead of one"]
    return ConflictError(
        f"patch {patch.name} does not apply: git refuses it",
        patch=patch,
        details=[where, *count, *(f"git     {line}" for line in useful[:_SAID])],
        hint=_next_command(patch),
    )


def _next_command(patch: Patch) -> str:
    folder = patch.path.parent
    upstream, version = folder.parent.name, folder.name
    return (
        f"correct it; or, made on release X, put it into the series of X and carry it here: "
        f"`mxtree rebase {upstream} --from X --onto {version}`; "
        f"or take {patch.name} out of {show_path(folder)}/series"
    )


def _last_touch(tree: TreeState, section: FilePatch) -> str:
    names = {tree.touched_by[path] for path in section.paths if path in tree.touched_by}
    return f"  (as patch {', '.join(sorted(names))} left it)" if names else ""


def _hunk(error: MismatchError, _: TreeState) -> list[str]:
    section, lines = error.section, error.lines
    hunk = section.hunks[error.hunk]
    place = best_place(hunk, lines)
    there = list(lines[place.start : place.start + len(hunk.old)])
    header = hunk.header.decode("utf-8", "backslashreplace")
    last = hunk.old_start + len(hunk.old) - 1
    rows = [f"hunk    {error.hunk + 1} of {len(section.hunks)}: {header}"]
    rows += [f"the patch expects, in lines {hunk.old_start} to {last}:"]
    rows += excerpt(hunk.old, there)
    if place.equal:
        where = f"line {place.start + 1}, {place.equal} of {len(hunk.old)} lines equal"
        rows += [f"there now (nearest match: {where}):", *excerpt(there, hunk.old)]
    else:
        rows += [f"there now: nothing like it in the {len(lines)} lines of the file"]
    rows += ["the patch wants:", *excerpt(hunk.new, hunk.old)]
    if not hunk.new:
        rows += ["    nothing: it deletes these lines"]
    return rows + invisible_reason(hunk, lines, there)


def _missing(error: MismatchError, tree: TreeState) -> list[str]:
    section = error.section
    rows = [
        f"the patch expects    the file{_blob(section.old_id)}",
        "there now            nothing",
        f"the patch wants      to {section.change} it{_target(section)}",
    ]
    near = _similar(section.old_path, tree)
    return [*rows, f"files of that name   {', '.join(near)}"] if near else rows


def _exists(error: MismatchError, tree: TreeState) -> list[str]:
    section = error.section
    entry = tree.get(section.new_path)
    oid = entry.blob.oid if entry else ""
    equal = bool(section.new_id) and oid.startswith((section.new_id or b"?").decode("ascii"))
    return [
        "the patch expects    no such file",
        f"there now            blob {oid}" + (", the very one that it wants" if equal else ""),
        f"the patch wants      to {section.change}{_target(section)} it{_blob(section.new_id)}",
    ]


def _wrong_type(error: MismatchError, tree: TreeState) -> list[str]:
    section = error.section
    entry = tree.get(section.old_path)
    return [
        f"the patch expects    mode {section.old_mode or 0:06o}",
        f"there now            mode {entry.mode if entry else 0:06o}",
        f"the patch wants      to {section.change} it",
    ]


def _not_empty(error: MismatchError, _: TreeState) -> list[str]:
    count = len(error.lines)
    return [
        "the patch expects    no lines but those that it deletes",
        f"there now            {count} more {'line' if count == 1 else 'lines'}:",
        *excerpt(error.lines, ()),
        "the patch wants      to delete the file",
    ]


def _other_binary(error: MismatchError, tree: TreeState) -> list[str]:
    section = error.section
    entry = tree.get(section.old_path)
    oid = entry.blob.oid if entry else ""
    is_new = (section.new_id or b"").decode("ascii") == oid
    return [
        f"the patch expects    {_blob(section.old_id).strip(' ()') or 'an empty file'}",
        f"there now            blob {oid}" + (", the very one that it wants" if is_new else ""),
        f"the patch wants      {_blob(section.new_id).strip(' ()') or 'to delete it'}",
    ]


_DETAILS: dict[Why, Callable[[MismatchError, TreeState], list[str]]] = {
    Why.HUNK: _hunk,
    Why.MISSING: _missing,
    Why.EXISTS: _exists,
    Why.WRONG_TYPE: _wrong_type,
    Why.NOT_EMPTY: _not_empty,
    Why.OTHER_BINARY: _other_binary,
}


def _similar(path: bytes, tree: TreeState) -> list[str]:
    base = path.rpartition(b"/")[2]
    same = [found for found in tree if found.rpartition(b"/")[2] == base]
    return [_show(found) for found in sorted(same)[:3]]


def _target(section: FilePatch) -> str:
    if section.old_path == section.new_path:
        return ""
    return f" {_show(section.old_path)} to {_show(section.new_path)}"


def _blob(oid: bytes | None) -> str:
    return f" (blob {oid.decode('ascii')})" if oid and oid.strip(b"0") else ""


def _show(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
