# SPDX-License-Identifier: Apache-2.0
"""One patch file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from mxtree.series.fields import parse_fields, split_list
from mxtree.series.gitmail import read_with_git
from mxtree.series.mail import Mail, parse_mail

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.series.fields import Field


@dataclass(frozen=True)
class Patch:
    """A patch of a series: its file, stable id and bytes, and what git reads out of them."""

    path: Path
    id: str
    name: str
    raw: bytes

    @cached_property
    def digest(self) -> str:
        """sha256 of the file, in hex."""
        return hashlib.sha256(self.raw).hexdigest()

    @cached_property
    def mail(self) -> Mail | None:
        """Author, message and diff; None when only git itself can read this file exactly."""
        return parse_mail(self.raw)

    @cached_property
    def message(self) -> str:
        """The commit message. Raises `FatalError` when git cannot read the file as a mail."""
        mail = self.mail or read_with_git(self.raw, self.path)
        return mail.message.decode("utf-8", "replace")

    @property
    def subject(self) -> str:
        """The first paragraph of the message in one line."""
        return self.message.partition("\n\n")[0].strip().replace("\n", " ")

    @cached_property
    def header(self) -> tuple[Field, ...]:
        """Every header field in order, with its line in the message."""
        return parse_fields(self.message)

    @property
    def fields(self) -> dict[str, str]:
        """The header fields by name; the first counts when one stands twice."""
        return {field.name: field.value for field in reversed(self.header)}

    @property
    def changes(self) -> tuple[str, ...]:
        """The upstream symbols that the patch says it changes."""
        return split_list(self.fields.get("Changes", ""))

    @property
    def proven_by(self) -> tuple[str, ...]:
        """The ids of the tests that fail without the patch."""
        return split_list(self.fields.get("Proven-By", ""))
