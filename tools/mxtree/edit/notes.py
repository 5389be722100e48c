# SPDX-License-Identifier: Apache-2.0
"""Which patch file a commit came from: git notes that survive amend, reword and rebase.

A line in the message would be edited away, and would make the message another one than upstream
is to see; git carries notes along when it rewrites a commit (``notes.rewriteRef``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.git import IDENTITY_EMAIL, IDENTITY_NAME, git, run_git

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NOTES_REF = "refs/notes/mxtree-patches"


def write_notes(repository: Path, names: Mapping[str, str]) -> None:
    """Record the patch file name of each commit id, and let the user's git keep it on rewrites.

    Replaces what was recorded before.
    """
    # Squashing two patches must leave both names, so that the first can live on.
    git("config", "notes.rewriteRef", NOTES_REF, cwd=repository)
    git("config", "notes.rewriteMode", "concatenate", cwd=repository)
    run_git("update-ref", "-d", NOTES_REF, cwd=repository)
    if names:
        git("fast-import", "--quiet", "--done", cwd=repository, stdin=_stream(names))


def read_notes(repository: Path, commits: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the patch names recorded for each commit that has any; several after a squash."""
    if (
        not commits
        or run_git("rev-parse", "-q", "--verify", NOTES_REF, cwd=repository, ok=(0, 1)).returncode
    ):
        return {}
    options = (
        "log",
        "--no-walk=unsorted",
        "--stdin",
        f"--notes={NOTES_REF}",
        "--format=%H%x00%N%x00",
    )
    out = git(*options, cwd=repository, stdin="\n".join(commits).encode())
    fields = out.decode("utf-8").split("\0")
    pairs = zip(fields[::2], fields[1::2], strict=False)
    return {commit.strip(): tuple(names.split()) for commit, names in pairs if names.split()}


def _stream(names: Mapping[str, str]) -> bytes:
    lines = [
        f"commit {NOTES_REF}",
        f"committer {IDENTITY_NAME} <{IDENTITY_EMAIL}> 0 +0000",
        "data 0",
    ]
    for commit, name in names.items():
        note = name + "\n"
        lines += [f"N inline {commit}", f"data {len(note.encode())}", note]
    return ("\n".join([*lines, "done", ""])).encode()
