# SPDX-License-Identifier: Apache-2.0
"""The bare repository of an upstream: made whole or not at all, one pack an import."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree.errors import ExitCode, FatalError
from mxtree.git import GitError, git
from mxtree.upstreams.objects import STAMP, commit_id, tree_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mxtree.upstreams.content import File

_DAY_S = 86400.0


def create(repo: Path) -> None:
    """Make an empty bare repository unless there is one; the caller holds its lock.

    It is made beside the place and renamed, so a killed run leaves nothing that looks like one.
    """
    if repo.is_dir():
        _sweep(repo)
        return
    for left in repo.parent.glob(f"{repo.name}.new-*"):
        shutil.rmtree(left)
    new = Path(tempfile.mkdtemp(prefix=f"{repo.name}.new-", dir=repo.parent))
    git("init", "--quiet", "--bare", "--template=", new)
    # Objects that only a tree's patches use have no ref here; nothing may prune them.
    git("config", "gc.auto", "0", cwd=new)
    new.chmod(0o755)
    new.replace(repo)


def _sweep(repo: Path) -> None:
    """Remove what killed git processes left: they hold no lock of ours, so old ones only."""
    (repo / "shallow.lock").unlink(missing_ok=True)
    for left in [*repo.glob("objects/pack/tmp_*"), *repo.glob("fast_import_crash_*")]:
        if time.time() - left.stat().st_mtime > _DAY_S:
            left.unlink(missing_ok=True)


def find(repo: Path, ref: str) -> tuple[str, str] | None:
    """Return commit and tree of a ref, or None when either is not in the repository."""
    if not repo.is_dir():
        return None
    query = f"{ref}^{{commit}}\n{ref}^{{tree}}\n".encode()
    try:
        answer = git("cat-file", "--batch-check=%(objectname)", cwd=repo, stdin=query)
    except GitError as error:
        raise FatalError(
            f"{repo} is damaged",
            details=error.details,
            hint=f"remove it and run the same command again: rm -r '{repo}'",
            code=ExitCode.COULD_NOT_CHECK,
        ) from error
    commit, tree = answer.decode().splitlines()
    return None if "missing" in commit + tree else (commit, tree)


def publish(repo: Path, ref: str, commit: str) -> None:
    """Point a ref at a commit; the caller holds the repository's lock."""
    # A lock file of a killed git would stop every later run; ours proves that it is stale.
    (repo / f"{ref}.lock").unlink(missing_ok=True)
    git("update-ref", ref, commit, cwd=repo)


def import_files(repo: Path, files: Sequence[File], message: str) -> str:
    """Write the files as a commit with the fixed identity, in one pack, and return its id.

    No ref moves: what a killed run leaves is never looked at. Raises `FatalError` when git made
    other objects than expected.
    """
    tree = tree_id(files)
    expected = commit_id(tree, message)
    stream = b"".join(_stream(files, message))
    # Small imports would be exploded into loose objects.
    answer = git("-c", "fastimport.unpackLimit=1", "fast-import", "--quiet", cwd=repo, stdin=stream)
    found = answer.decode().split()
    if found[:1] != [expected] or tree not in found:
        raise FatalError(
            f"git made commit {found[0]} where {expected} was expected",
            hint="this git is broken; install another version",
            code=ExitCode.COULD_NOT_CHECK,
        )
    return expected


def _stream(files: Sequence[File], message: str) -> Iterator[bytes]:
    yield b"feature done\ncommit refs/mxtree/incoming\nmark :1\n"
    yield f"author {STAMP}\ncommitter {STAMP}\n".encode()
    yield _data(message.encode())
    for file in files:
        yield b"M " + file.mode + b" inline " + _quoted(file.path) + b"\n" + _data(file.data)
    # `reset` without a start forgets the branch, so that fast-import writes no ref.
    yield b'\nget-mark :1\nls :1 ""\nreset refs/mxtree/incoming\n\ndone\n'


def _data(content: bytes) -> bytes:
    return b"data %d\n%b\n" % (len(content), content)


def _quoted(path: bytes) -> bytes:
    escaped = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + escaped + b'"'
