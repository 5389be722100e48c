# SPDX-License-Identifier: Apache-2.0
"""The lines of a diff with a place among them, and the errors that name the place."""

from __future__ import annotations


class UnusualDiffError(ValueError):
    """A diff that this package leaves to git; ``line`` is the line of the patch file."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(f"line {line}: {reason}")
        self.reason = reason
        self.line = line


class DamagedDiffError(UnusualDiffError):
    """A diff that git would apply in part, without a word: refused, whatever git says."""


class Lines:
    """The lines of a diff, without line feeds, read one after another.

    Raises `UnusualDiffError` when the last line is not ended.
    """

    def __init__(self, diff: bytes, first_line: int) -> None:
        self.all = diff.split(b"\n")
        self.at = 0
        self._first = first_line
        if self.all.pop():
            self.at = len(self.all)
            raise self.unusual("no newline at the end")

    @property
    def number(self) -> int:
        """The line of the file that comes next."""
        return self._first + self.at

    @property
    def is_at_end(self) -> bool:
        return self.at >= len(self.all)

    def peek(self) -> bytes:
        """Return the next line, b"" at the end."""
        return self.all[self.at] if self.at < len(self.all) else b""

    def unusual(self, reason: str) -> UnusualDiffError:
        """Return the error for the line that comes next."""
        return UnusualDiffError(reason, self.number)
