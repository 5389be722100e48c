# SPDX-License-Identifier: Apache-2.0
"""Compare a tree with its manifest, byte for byte, and name whatever differs."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mxtree.git import run_git
from mxtree.tree.files import FileEntry, content, digest, git_mode, scan, walk
from mxtree.tree.manifest import MANIFEST_NAME, load_manifest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from mxtree.tree.manifest import FolderRecord, Manifest, UpstreamRecord

Kind = Literal["differs", "mode", "missing", "extra", "commits", "manifest"]


@dataclass(frozen=True)
class Difference:
    """One thing that is not as the manifest says; ``path`` is relative to the tree."""

    kind: Kind
    path: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind:9} {self.path}" + (f"  ({self.detail})" if self.detail else "")


def verify(tree: Path) -> list[Difference]:
    """Recompute everything ``tree.json`` claims and return the differences, sorted by path.

    Every file is read and hashed; neither git's index nor a time stamp is trusted. Raises
    `FatalError` when ``tree`` is not a tree.
    """
    manifest = load_manifest(tree)
    found = [*_check_manifest(manifest), *_check_top_level(tree, manifest)]
    for name, upstream in manifest.upstreams.items():
        found += _check_upstream(tree, name, upstream)
    for name, folder in manifest.folders.items():
        found += _check_folder(tree, name, folder)
    return sorted(found, key=lambda item: (item.path, item.kind))


def _check_manifest(manifest: Manifest) -> Iterator[Difference]:
    computed = manifest.compute_digest()
    if computed != manifest.digest:
        yield Difference("manifest", MANIFEST_NAME, f"says {manifest.digest}, is {computed}")
    for name, folder in manifest.folders.items():
        recorded = {
            path: FileEntry(entry.mode, entry.sha256) for path, entry in folder.files.items()
        }
        if digest(recorded) != folder.digest:
            yield Difference("manifest", MANIFEST_NAME, f"its digest of {name}/ is not of its list")


def _check_top_level(tree: Path, manifest: Manifest) -> Iterator[Difference]:
    expected = {MANIFEST_NAME, *manifest.upstreams, *manifest.folders}
    for path in tree.iterdir():
        if path.name not in expected:
            yield Difference("extra", path.name)


def _check_upstream(tree: Path, name: str, record: UpstreamRecord) -> Iterator[Difference]:
    repository = tree / name
    listed = run_git("ls-tree", "-r", "-z", record.head_commit, cwd=repository, ok=range(256))
    if not (repository / ".git").exists() or listed.returncode:
        reason = f"commit {record.head_commit[:12]} cannot be read"
        yield Difference("missing", f"{name}/.git", reason)
        return
    yield from _check_commits(repository, name, record)
    expected = dict(_parse_ls_tree(listed.stdout))
    # An sdist brings an egg-info folder: what upstream ships counts even where its name is ignored.
    present = set(walk(repository)) | {p for p in expected if os.path.lexists(repository / p)}
    yield from _named_sets(name, expected.keys(), present)
    for path in expected.keys() & present:
        file = repository / path
        mode, blob = expected[path]
        if git_mode(file) != mode:
            yield Difference("mode", f"{name}/{path}", f"{mode} expected, {git_mode(file)} found")
        if blob_id(content(file)) != blob:
            yield Difference("differs", f"{name}/{path}")


def _check_commits(repository: Path, name: str, record: UpstreamRecord) -> Iterator[Difference]:
    head = run_git("rev-parse", "HEAD", cwd=repository, ok=range(256)).stdout.decode().strip()
    if head != record.head_commit:
        detail = f"HEAD is {head[:12]}, the manifest says {record.head_commit[:12]}"
        yield Difference("commits", name, detail)
    span = f"{record.base_commit}..{record.head_commit}"
    log = run_git("rev-list", "--reverse", span, cwd=repository, ok=range(256))
    commits = [patch.commit for patch in record.patches]
    if log.stdout.decode().split() != commits:
        yield Difference("commits", name, "the patches in the manifest are not those of the branch")


def _check_folder(tree: Path, name: str, record: FolderRecord) -> Iterator[Difference]:
    present = scan(tree / name)
    yield from _named_sets(name, record.files.keys(), present.keys())
    for path in record.files.keys() & present.keys():
        expected, found = record.files[path], present[path]
        if expected.mode != found.mode:
            detail = f"{expected.mode} expected, {found.mode} found"
            yield Difference("mode", f"{name}/{path}", detail)
        if expected.sha256 != found.sha256:
            yield Difference("differs", f"{name}/{path}")


def _named_sets(
    name: str, expected: Collection[str], present: Collection[str]
) -> Iterator[Difference]:
    for path in set(expected) - set(present):
        yield Difference("missing", f"{name}/{path}")
    for path in set(present) - set(expected):
        yield Difference("extra", f"{name}/{path}")


def _parse_ls_tree(listing: bytes) -> Iterator[tuple[str, tuple[str, str]]]:
    for line in listing.split(b"\0")[:-1]:
        meta, path = line.split(b"\t", 1)
        mode, _, blob = meta.decode().split()
        yield path.decode("utf-8", "surrogateescape"), (mode, blob)


def blob_id(data: bytes) -> str:
    """Return git's SHA-1 object id of a blob."""
    # usedforsecurity: an object name as git defines it; the manifest's digests are sha256.
    header = b"blob %d\0" % len(data)
    return hashlib.sha1(header + data, usedforsecurity=False).hexdigest()
