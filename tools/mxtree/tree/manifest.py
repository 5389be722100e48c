# SPDX-License-Identifier: Apache-2.0
"""``tree.json``: what a tree is made of, and the digest that names it."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST_NAME = "tree.json"
SCHEMA: Literal[1] = 1


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PatchRecord(_Model):
    """One applied patch. ``digest`` is the sha256 of the patch file; ``commit`` what it became."""

    id: str
    name: str
    title: str
    digest: str
    commit: str


class UpstreamRecord(_Model):
    """One upstream: the release it comes from and the commits on top of it."""

    version: str
    tag: str
    source: dict[str, str]
    base_commit: str
    base_tree: str
    head_commit: str
    head_tree: str
    patches: tuple[PatchRecord, ...]


class FileRecord(_Model):
    """One file of the overlay or the recipes: git mode and sha256 in hex."""

    mode: str
    sha256: str


class FolderRecord(_Model):
    """One copied folder and its digest over mode, hash and path of every file."""

    digest: str
    files: dict[str, FileRecord]


class Manifest(_Model):
    """The content of ``tree.json``.

    ``digest`` names the content alone: the head commits and the folder digests. ``inputs`` is the
    digest of what the build was asked to put in; equal inputs need no second build.
    """

    schema_version: Literal[1] = SCHEMA
    tool_version: str
    patched: bool
    digest: str
    inputs: str
    upstreams: dict[str, UpstreamRecord]
    folders: dict[str, FolderRecord]

    def compute_digest(self) -> str:
        """Return the tree digest, sha256 in hex, that belongs to the recorded content."""
        return json_digest(
            {
                "schema": self.schema_version,
                "upstreams": {n: [u.head_commit, u.head_tree] for n, u in self.upstreams.items()},
                "folders": {name: folder.digest for name, folder in self.folders.items()},
            }
        )

    def write(self, tree: Path) -> None:
        """Write ``tree.json`` into ``tree`` and force it to disk."""
        text = json.dumps(self.model_dump(), indent=2, sort_keys=True) + "\n"
        with (tree / MANIFEST_NAME).open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


def json_digest(value: object) -> str:
    """Return the sha256, in hex, of a JSON value in one fixed spelling."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def load_manifest(tree: Path) -> Manifest:
    """Read ``tree.json``. Raises `FatalError` when ``tree`` is no tree or the file is malformed."""
    path = tree / MANIFEST_NAME
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FatalError(
            f"{tree} is not a tree: it has no {MANIFEST_NAME}",
            hint=f"mxtree build --out {tree}",
        ) from error
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        raise FatalError(
            f"{path} is not a manifest that this mxtree can read",
            details=[
                f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors()
            ],
            hint=f"mxtree build --out {tree} --discard makes it again",
            code=ExitCode.CHECK_FAILED,
        ) from error
