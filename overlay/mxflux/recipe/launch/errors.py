# SPDX-License-Identifier: Apache-2.0
"""What stops a launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class LaunchError(RuntimeError):
    """A run that cannot start or go on: what is wrong, details, what to do next, exit code."""

    def __init__(
        self, message: str, *, details: Sequence[str] = (), hint: str | None = None, code: int = 2
    ) -> None:
        super().__init__(message)
        self.details = tuple(details)
        self.hint = hint
        self.code = code

    def text(self) -> str:
        """Return the error as a user reads it."""
        lines = [f"error: {self}", *(f"  {line}" for line in self.details)]
        return "\n".join([*lines, *([f"next: {self.hint}"] if self.hint else [])])
