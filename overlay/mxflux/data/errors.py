# SPDX-License-Identifier: Apache-2.0
"""What a user sees when data cannot be read, or an encoder cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class DataError(ValueError):
    """Data that do not fit: the message names setting, shard, sample and key.

    ``problems`` lists every one found, a line each. One text argument is enough to build it, so
    that it crosses from a loader process into the run.
    """

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        self.problems = tuple(problems)
        super().__init__(message + "".join(f"\n  {problem}" for problem in self.problems))
