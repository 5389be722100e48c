# SPDX-License-Identifier: Apache-2.0
"""What a user sees when something goes wrong, and the exit code that goes with it."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


#: The way on when a file could not be written; every command leaves the old state or the new one.
NO_PLACE_HINT = "make room, or allow writing there, then run the same command again"


class ExitCode(IntEnum):
    """Exit status of every command; documented in docs/reference/exit-codes.md."""

    OK = 0
    CHECK_FAILED = 1
    USAGE = 2
    CONFLICT = 3
    COULD_NOT_CHECK = 4
    INTERRUPTED = 130


class FatalError(Exception):
    """An error that ends the command with one screen of text and no traceback.

    ``message`` says what is wrong and names the file, line, key or tensor; ``details`` are
    further lines; ``hint`` is what to do next, best as a command.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        details: Sequence[str] = (),
        code: ExitCode = ExitCode.USAGE,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = tuple(details)
        self.code = code
