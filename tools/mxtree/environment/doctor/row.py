# SPDX-License-Identifier: Apache-2.0
"""One line of the doctor's screen."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How a thing stands: as it should be, not there, or there and not as it should be."""

    OK = "ok"
    MISSING = "missing"
    WRONG = "wrong"


@dataclass(frozen=True)
class Row:
    """What was looked at and found; ``fix`` says what to do about it.

    Only a ``required`` row that is not ok makes the doctor fail.
    """

    name: str
    status: Status
    found: str
    fix: str = ""
    required: bool = False

    @property
    def fails(self) -> bool:
        """Return whether this row alone makes the doctor fail."""
        return self.required and self.status is not Status.OK


def ok(name: str, found: str, *, required: bool = False) -> Row:
    """Return a row of something that is as it should be."""
    return Row(name, Status.OK, found, required=required)


def missing(name: str, found: str, fix: str, *, required: bool = False) -> Row:
    """Return a row of something that is not there."""
    return Row(name, Status.MISSING, found, fix, required)


def wrong(name: str, found: str, fix: str, *, required: bool = False) -> Row:
    """Return a row of something that is there and will not do."""
    return Row(name, Status.WRONG, found, fix, required)
