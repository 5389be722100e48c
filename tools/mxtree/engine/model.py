# SPDX-License-Identifier: Apache-2.0
"""What applying a patch gives: a commit, or a conflict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxtree.series import Patch


class Fit(StrEnum):
    """How a patch fitted."""

    #: At its own line numbers.
    EXACT = "exact"
    #: The same lines, but at other numbers.
    OFFSET = "offset"
    #: Applied by git itself, which does not tell where.
    GIT = "git"
    #: By a merge with the blobs that its index lines name, because the lines differ.
    THREE_WAY = "three-way"


@dataclass(frozen=True)
class Applied:
    """A patch and the commit (and its tree) that it became; ids in hex."""

    patch: Patch
    commit: str
    tree: str
    fit: Fit


class ConflictError(FatalError):
    """A patch does not apply; names patch, file, hunk, the three versions and the next command.

    ``is_merged`` tells that a 3-way merge succeeds and changes nothing: what the patch does is in
    the base already, and `git am --3way` would have dropped it without a word.
    """

    def __init__(
        self, message: str, *, patch: Patch, details: Sequence[str] = (), hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint, details=details, code=ExitCode.CONFLICT)
        self.patch = patch
        self.is_merged = False
