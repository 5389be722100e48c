# SPDX-License-Identifier: Apache-2.0
"""Apply a series on a base commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.engine.am import AmSession
from mxtree.engine.model import Applied, ConflictError, Fit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mxtree.series import Patch


def apply_series(
    repo: Path, base: str, patches: Sequence[Patch], *, three_way: bool = False
) -> tuple[Applied, ...]:
    """Apply ``patches`` in order on commit ``base`` of ``repo``: one commit each.

    Objects are written into ``repo`` (bare or not); no ref moves. The commits are those of the
    hermetic `git am --committer-date-is-author-date`, id for id. Raises `ConflictError` for the
    first patch that does not apply; with ``three_way`` only when a merge with the blobs that its
    index lines name fails as well.
    """
    applied, conflict = apply_prefix(repo, base, patches, three_way=three_way)
    if conflict is not None:
        raise conflict
    return applied


def apply_prefix(
    repo: Path, base: str, patches: Sequence[Patch], *, three_way: bool = False
) -> tuple[tuple[Applied, ...], ConflictError | None]:
    """Apply as many of ``patches`` as fit, and return them with the conflict that ended it."""
    applied: list[Applied] = []
    with AmSession(repo) as session:
        session.start(base)
        parent = base
        for patch in patches:
            result = session.am(patch.raw, three_way=three_way)
            made = session.commits(parent) if result.returncode == 0 else []
            if len(made) != 1:
                stderr = result.stderr.decode("utf-8", "replace").splitlines()
                return tuple(applied), ConflictError(
                    f"patch {patch.name} does not apply", patch=patch, details=stderr
                )
            parent, tree = made[0]
            applied.append(Applied(patch, parent, tree, Fit.EXACT))
    return tuple(applied), None
