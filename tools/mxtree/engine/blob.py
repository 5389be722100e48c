# SPDX-License-Identifier: Apache-2.0
"""The content of a file: as bytes, as lines, as an object id, each made only when asked for."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

from mxtree.engine.hunks import split_lines

if TYPE_CHECKING:
    from collections.abc import Callable


class Blob(ABC):
    """The content of a file; never changed in place, nor are its ``lines``."""

    @property
    @abstractmethod
    def content(self) -> bytes:
        """The bytes."""

    @cached_property
    def lines(self) -> list[bytes]:
        """The lines with their line feeds; the last may lack one."""
        return split_lines(self.content)

    @cached_property
    def oid(self) -> str:
        """The git object id in hex."""
        content = self.content
        header = b"blob %d\0" % len(content)
        return hashlib.sha1(header + content, usedforsecurity=False).hexdigest()


class StoredBlob(Blob):
    """Content that the repository holds already; ``load`` reads it by its id."""

    def __init__(self, oid: str, load: Callable[[str], bytes]) -> None:
        self.oid = oid
        self._load = load

    @property
    def content(self) -> bytes:
        return self._load(self.oid)


class NewBlob(Blob):
    """Content that a patch made."""

    def __init__(self, lines: list[bytes] | None = None, content: bytes | None = None) -> None:
        if lines is not None:
            self.lines = lines
        self._content = content

    @property
    def content(self) -> bytes:
        return b"".join(self.lines) if self._content is None else self._content
