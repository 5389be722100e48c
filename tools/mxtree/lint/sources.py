# SPDX-License-Identifier: Apache-2.0
"""Checks that need the upstream release: the series applies, its bytes are git's, symbols exist."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from mxtree.engine import ConflictError, apply_prefix
from mxtree.errors import FatalError
from mxtree.git import git
from mxtree.lint.changes import file_of, module_name, touched_files
from mxtree.lint.form import first_difference
from mxtree.lint.place import located_fields
from mxtree.series import Problem
from mxtree.series.canonical import format_range
from mxtree.series.fields import split_list
from mxtree.upstreams.imports import repository_path
from mxtree.upstreams.repository import find

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mxtree.engine import Applied
    from mxtree.lint.model import SeriesAt
    from mxtree.upstreams import Upstreams


class Base(NamedTuple):
    """A release in the cache."""

    repo: Path
    commit: str


def find_base(upstreams: Upstreams, found: SeriesAt) -> Base | None:
    """Return the release of a series when the cache has it; fetch nothing."""
    release = upstreams.get(found.upstream).release(found.version)
    places = (
        (repository_path(found.upstream), f"refs/mxtree/index/{release.sha256}"),
        (repository_path(found.upstream, "-from-git"), f"refs/mxtree/git/{release.commit}"),
    )
    for repo, ref in places:
        known = find(repo, ref)
        if known is not None:
            return Base(repo, known[0])
    return None


def check_against(base: Base, found: SeriesAt) -> Iterator[Problem]:
    """Yield why a series does not apply, where git writes other bytes, and symbols that are not.

    What comes after a patch that does not apply is not checked.
    """
    try:
        applied, conflict = apply_prefix(base.repo, base.commit, found.series.patches)
    except FatalError as error:
        path = found.series.directory
        yield Problem(path, 0, error.message, error.hint or "correct the patch", "apply")
        return
    if conflict is not None:
        yield _conflict(conflict)
    if applied:
        yield from _check_bytes(base, applied)
        yield from _check_symbols(base, applied)


def _conflict(conflict: ConflictError) -> Problem:
    first = conflict.details[0] if conflict.details else ""
    tail = first.rpartition(":")[2]
    line = int(tail) if tail.isdecimal() else 0
    fix = "`mxtree build` shows the three versions"
    return Problem(conflict.patch.path, line, conflict.message, fix, "apply")


def _check_bytes(base: Base, applied: Sequence[Applied]) -> Iterator[Problem]:
    written = format_range(base.repo, base.commit, applied[-1].commit)
    for item, raw in zip(applied, written, strict=True):
        if item.patch.raw != raw:
            yield first_difference(item.patch, item.patch.raw, raw, "form-bytes")


def _check_symbols(base: Base, applied: Sequence[Applied]) -> Iterator[Problem]:
    for item in applied:
        files = touched_files(item.patch) or {}
        defined: dict[str, frozenset[str] | None] = {}
        for field in located_fields(item.patch):
            for symbol in split_list(field.value) if field.name == "Changes" else ():
                path = file_of(symbol, files)
                if path is None or not files[path] or module_name(path) in {None, symbol}:
                    continue
                if path not in defined:
                    defined[path] = _names_in(base.repo, f"{item.commit}:{path}")
                wrong = _wrong_symbol(symbol, path, defined[path])
                if wrong is not None:
                    yield Problem(item.patch.path, field.line, *wrong)


def _wrong_symbol(
    symbol: str, path: str, names: frozenset[str] | None
) -> tuple[str, str, str] | None:
    if names is None:
        return f"{path} is no valid Python after this patch", "correct the patch", "changes-syntax"
    inner = symbol.removeprefix(f"{module_name(path)}.")
    if inner in names:
        return None
    last = inner.rpartition(".")[2]
    near = sorted(name for name in names if name.rpartition(".")[2] == last)[:3]
    fix = f"did you mean {', '.join(near)}?" if near else "correct the name"
    return f"{path} defines no {inner} after this patch", fix, "changes-missing"


def _names_in(repo: Path, blob: str) -> frozenset[str] | None:
    """Return every dotted name that a Python file defines, None when it is no valid Python."""
    try:
        module = ast.parse(git("cat-file", "blob", blob, cwd=repo))
    except SyntaxError:
        return None
    return frozenset(_defined(module, ""))


def _defined(node: ast.AST, prefix: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield prefix + child.name
            yield from _defined(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield prefix + child.id
        elif isinstance(child, ast.alias):
            yield prefix + (child.asname or child.name)
        else:
            yield from _defined(child, prefix)
