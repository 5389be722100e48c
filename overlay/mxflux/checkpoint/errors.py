# SPDX-License-Identifier: Apache-2.0
"""What a user sees when a checkpoint cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class CheckpointError(ValueError):
    """A checkpoint that is damaged, of another model, or not a checkpoint.

    ``problems`` lists every one found, a line each, naming file or tensor.
    """

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        self.problems = tuple(problems)
        super().__init__(message + "".join(f"\n  {problem}" for problem in self.problems))
