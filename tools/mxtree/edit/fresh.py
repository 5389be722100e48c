# SPDX-License-Identifier: Apache-2.0
"""The tree that an export reads: the user's, or for a check without one a throw-away one."""

from __future__ import annotations

import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from mxtree.tree.build import BuildRequest, build

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mxtree.project import Project
    from mxtree.upstreams import Source


@contextmanager
def tree_to_export(
    project: Project,
    tree: Path | None,
    *,
    check: bool,
    names: Sequence[str] = (),
    sources: Mapping[str, Source] = MappingProxyType({}),
) -> Iterator[Path]:
    """Yield ``tree``, by default trees/default.

    With ``check`` and no tree there (a fresh checkout), one is built aside, of the upstreams that
    are named (all by default): then the check proves that the series survives a build and an
    export byte for byte.
    """
    where = (tree or project.default_tree).absolute()
    if tree is not None or not check or where.exists():
        yield where
        return
    print(f"{where} is not built; checking a fresh tree made from patches/", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="mxtree-check-") as folder:
        fresh = Path(folder) / "tree"
        build(project, BuildRequest(out=fresh, sources=sources, only=tuple(names)))
        yield fresh
