# SPDX-License-Identifier: Apache-2.0
"""Copy one commit out of a clone on this machine: full, shallow or partial."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.errors import ExitCode, FatalError
from mxtree.git import GitError, git
from mxtree.upstreams.transport import transport_env

if TYPE_CHECKING:
    from pathlib import Path


def resolve_tag(clone: Path, tag: str) -> str:
    """Return the commit of a tag; raises `FatalError` when the clone has no such tag."""
    return _ask(clone, f"the tag {tag}", "rev-parse", "--verify", f"refs/tags/{tag}^{{commit}}")


def copy_commit(clone: Path, commit: str, repo: Path) -> None:
    """Copy a commit and its files into the bare repository ``repo``, as one pack, and mark it there
    as having no parents.

    Objects are packed, not fetched: serving from a shallow or partial clone fails for some git
    versions, while packing lets a partial clone get what it lacks, all at once. Raises `FatalError`
    when the clone does not have the commit or cannot complete it.
    """
    _ask(clone, f"commit {commit}", "cat-file", "-e", f"{commit}^{{commit}}")
    try:
        env = transport_env()
        rows = git("ls-tree", "-r", "-t", "-z", "--full-tree", commit, cwd=clone, env=env)
        tree = git("rev-parse", f"{commit}^{{tree}}", cwd=clone, env=env)
        ids = {commit.encode(), tree.strip(), *_object_ids(rows)}
        pack = git(
            "pack-objects", "--stdout", "--quiet", cwd=clone, env=env, stdin=b"\n".join(ids) + b"\n"
        )
    except GitError as error:
        raise FatalError(
            f"the clone {clone} lacks files of commit {commit} and could not fetch them",
            details=error.details,
            hint=f"complete it: git -C '{clone}' fetch --refetch",
            code=ExitCode.COULD_NOT_CHECK,
        ) from error
    git("index-pack", "--stdin", "--fsck-objects", cwd=repo, stdin=pack)
    _mark_shallow(repo, commit)


def _object_ids(listing: bytes) -> set[bytes]:
    """Return the ids in a listing of a tree; submodules are of other repositories."""
    rows = [row.partition(b"\t")[0].split() for row in listing.split(b"\0") if row]
    return {oid for _mode, kind, oid in rows if kind != b"commit"}


def _mark_shallow(repo: Path, commit: str) -> None:
    path = repo / "shallow"
    known = path.read_text("ascii").split() if path.exists() else []
    new = path.with_name("shallow.new")
    new.write_text("".join(f"{line}\n" for line in sorted({*known, commit})), "ascii")
    new.replace(path)


def _ask(clone: Path, what: str, *args: str) -> str:
    try:
        return git(*args, cwd=clone, env=transport_env()).decode().strip()
    except GitError as error:
        raise FatalError(
            f"the clone {clone} does not have {what}",
            details=error.details,
            hint=f"fetch it: git -C '{clone}' fetch --tags, then run the same command again",
            code=ExitCode.COULD_NOT_CHECK,
        ) from error
