# SPDX-License-Identifier: Apache-2.0
"""The field Changes: dotted names of what the patch touches, as its diff has it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mxtree.lint.place import located_fields
from mxtree.series import Problem
from mxtree.series.diff import Change, UnusualDiffError, parse_diff
from mxtree.series.fields import split_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mxtree.lint.model import SeriesAt
    from mxtree.series import Patch

_SYMBOL = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)


def touched_files(patch: Patch) -> dict[str, bool] | None:
    """Return the paths that the patch touches, and whether each exists afterwards.

    None when only git can read the diff.
    """
    if patch.mail is None:
        return None
    try:
        sections = parse_diff(patch.mail.diff, patch.mail.diff_line)
    except UnusualDiffError:
        return None
    found = {}
    for section in sections:
        for path in section.paths:
            gone = path != section.new_path or section.change is Change.DELETE
            found[path.decode("utf-8", "backslashreplace")] = not gone
    return found


def module_name(path: str) -> str | None:
    """Return the dotted name of a Python file of a source distribution, None for other files."""
    if not path.endswith((".py", ".pyi")):
        return None
    parts = path.removeprefix("src/").rpartition(".")[0].split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def file_of(symbol: str, paths: Iterable[str]) -> str | None:
    """Return the path whose module holds ``symbol`` (the longest name wins), or the path itself."""
    modules = [(module_name(path), path) for path in paths]
    inside = [
        (len(module), path)
        for module, path in modules
        if module is not None and f"{symbol}.".startswith(f"{module}.")
    ]
    return max(inside)[1] if inside else next((path for path in paths if path == symbol), None)


def check_changes(patch: Patch) -> Iterator[Problem]:
    """Yield malformed symbols, symbols outside the diff, and files that no symbol names."""
    files = touched_files(patch)
    if files is None:
        return
    named = set()
    fields = [field for field in located_fields(patch) if field.name == "Changes"]
    for field in fields:
        for symbol in split_list(field.value):
            path = file_of(symbol, files)
            named.add(path)
            if path is None:
                yield _wrong(patch, field.line, symbol, files)
    for path in files:
        if fields and module_name(path) and path not in named:
            message = f"Changes names nothing in {path}, which the patch touches"
            fix = f"add the symbol, {module_name(path)}.NAME"
            yield Problem(patch.path, fields[0].line, message, fix, "changes-incomplete")


def _wrong(patch: Patch, line: int, symbol: str, files: dict[str, bool]) -> Problem:
    if _SYMBOL.fullmatch(symbol) is None:
        fix = "write dotted names, package.module.Class.method, with commas between them"
        return Problem(patch.path, line, f"{symbol!r} is no symbol", fix, "changes-form")
    modules = sorted({module_name(path) or path for path in files})
    message = f"{symbol} is in no file that the patch touches"
    fix = f"symbols of this patch begin with {' or '.join(modules[:3])}"
    return Problem(patch.path, line, message, fix, "changes-elsewhere")


def shared_symbols(found: SeriesAt) -> Iterator[Problem]:
    """Yield a note for each symbol that several patches of a series change."""
    users: dict[str, list[Patch]] = {}
    for patch in found.series.patches:
        for symbol in dict.fromkeys(patch.changes):
            users.setdefault(symbol, []).append(patch)
    for symbol, patches in users.items():
        if len(patches) > 1:
            yield _shared(symbol, patches)


def _shared(symbol: str, patches: Sequence[Patch]) -> Problem:
    others = ", ".join(patch.name for patch in patches[:-1])
    message = f"{symbol} is changed by {others} as well"
    fix = "keep their order, or fold them into one"
    return Problem(patches[-1].path, 0, message, fix, "changes-shared")
