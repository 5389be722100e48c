# SPDX-License-Identifier: Apache-2.0
"""Where an upstream's files come from: the package index, a git repository, or a directory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from mxtree.errors import FatalError

Kind = Literal["index", "git", "dir"]

_COMMIT = re.compile(r"[0-9a-f]{40}")
# scheme://... or host:path; nothing that git could take for an option.
_URL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*:")
_FORMS = "index, git, git:URL_OR_PATH[@COMMIT] or dir:PATH"


@dataclass(frozen=True)
class Source:
    """A parsed ``--source`` option.

    ``location`` is the URL or absolute path of a git repository, or the absolute path of a
    directory; None means the repository that upstreams.toml names. ``commit`` is a full commit id;
    None means the one that the release pins.
    """

    kind: Kind
    location: str | None = None
    commit: str | None = None

    @classmethod
    def parse(cls, text: str) -> Source:
        """Parse ``index``, ``git``, ``git:URL_OR_PATH[@COMMIT]`` or ``dir:PATH``.

        Raises `FatalError` on anything else.
        """
        kind, _, rest = text.partition(":")
        if text in {"index", "git"}:
            return cls("git" if text == "git" else "index")
        if kind == "dir" and rest:
            return cls("dir", _existing_folder(text, rest))
        if kind == "git" and rest:
            return cls("git", *_split_commit(text, rest))
        raise FatalError(f"--source {text!r} is not a source", hint=f"use {_FORMS}")

    @property
    def path(self) -> Path | None:
        """The location as a local path, or None when it is a URL or not given."""
        if self.location is None or not Path(self.location).is_absolute():
            return None
        return Path(self.location)

    def __str__(self) -> str:
        place = f":{self.location}" if self.location else ""
        return f"{self.kind}{place}" + (f"@{self.commit}" if self.commit else "")


def _is_file(place: str) -> bool:
    return place.startswith("file://")


def _existing_folder(text: str, given: str) -> str:
    path = Path(given).expanduser().absolute()
    if not path.is_dir():
        raise FatalError(f"--source {text}: there is no folder {path}")
    return str(path)


def _split_commit(text: str, given: str) -> tuple[str, str | None]:
    if Path(given).expanduser().is_dir():
        return str(Path(given).expanduser().absolute()), None
    place, separator, commit = given.rpartition("@")
    # The `@` of git@host:path, and of https://user@host/path, is no commit's.
    if not separator or ":" in commit or "/" in commit:
        place, commit = given, ""
    elif not _COMMIT.fullmatch(commit):
        raise FatalError(
            f"--source {text}: {commit!r} is not a full commit id (40 hexadecimal digits)",
            hint=f"`git ls-remote {place} {commit}` prints the commit of a tag or branch",
        )
    return _repository(text, place), commit or None


def _repository(text: str, place: str) -> str:
    """Return a URL unchanged and a path absolute; raises `FatalError` when neither is possible."""
    path = Path(unquote(place.removeprefix("file://")) if _is_file(place) else place).expanduser()
    if path.is_dir():
        return str(path.absolute())
    if _is_file(place) or not _URL.match(place):
        raise FatalError(f"--source {text}: {place} is neither a URL nor a folder that exists")
    return place
