# SPDX-License-Identifier: Apache-2.0
"""The private work tree of a rebase, and the git operations in it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxtree.git import git, git_text, run_git
from mxtree.series.borrow import NEUTRAL_ATTRIBUTES
from mxtree.tree import repository

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from mxtree.git import GitResult

# The state file names what counts; a power cut that loses objects here costs a new start.
_FAST = {"core.fsync": "none", "index.version": "4", "feature.manyFiles": "true"}
# What the patch changed shows only beside what it was made for.
_SHOWN = {"merge.conflictStyle": "diff3"}


_REPLAYED = re.compile(rb"^Resolved '(.*?)' using previous resolution\.$", re.MULTILINE | re.DOTALL)
_REMEMBER = ("-c", "rerere.enabled=true", "-c", "rerere.autoUpdate=false")


@dataclass(frozen=True)
class Work:
    """A repository with the objects of both bases; HEAD is detached."""

    path: Path

    @classmethod
    def create(cls, path: Path, objects_of: Iterable[Path], commit: str) -> Work:
        """Make the repository and check out ``commit``."""
        first, *others = dict.fromkeys(objects_of)
        repository.create(path, first)
        for other in others:
            repository.add_objects(path, other)
        for key, value in (_FAST | _SHOWN).items():
            git("config", key, value, cwd=path)
        info = path / ".git" / "info"
        info.mkdir(exist_ok=True)
        # Upstream's own must not convert a line end, or settle a conflict by a union of both sides.
        (info / "attributes").write_text(f"{NEUTRAL_ATTRIBUTES} !merge\n", encoding="ascii")
        work = cls(path)
        git("update-ref", "--no-deref", "HEAD", commit, cwd=path)
        git("read-tree", "--reset", "-u", commit, cwd=path)
        return work

    def git(self, *args: str, stdin: bytes = b"") -> bytes:
        """Run git here and return its output."""
        return git(*args, cwd=self.path, stdin=stdin)

    def text(self, *args: str) -> str:
        """Run git here for one short answer."""
        return git_text(*args, cwd=self.path)

    @property
    def head(self) -> str:
        return self.text("rev-parse", "HEAD")

    def tree_of(self, commit: str) -> str:
        """Return the id of a commit's tree."""
        return self.text("rev-parse", f"{commit}^{{tree}}")

    def move_to(self, commit: str) -> None:
        """Put HEAD, index and files at ``commit``, whatever they were."""
        for name in ("CHERRY_PICK_HEAD", "sequencer"):
            self._forget(name)
        git("reset", "--quiet", "--hard", commit, cwd=self.path)

    def _forget(self, name: str) -> None:
        path = self.path / ".git" / name
        if path.is_dir():
            run_git("cherry-pick", "--quit", cwd=self.path, ok=range(256))
        elif path.exists():
            path.unlink()

    def pick(self, commits: Sequence[str]) -> GitResult:
        """Cherry-pick commits in order; stops at the first conflict and leaves it in the files.

        Authors and messages are kept, empty results too: what they mean is decided later.
        """
        options = ("--allow-empty", "--allow-empty-message", "--keep-redundant-commits")
        return run_git("cherry-pick", *options, *commits, cwd=self.path, ok=range(256))

    def share_resolutions(self, folder: Path) -> None:
        """Keep what git remembers of resolved conflicts in ``folder``, for later rebases too."""
        folder.mkdir(parents=True, exist_ok=True)
        (self.path / ".git" / "rr-cache").symlink_to(folder.absolute())
        # For a commit that the user makes; the runs of mxtree say so themselves.
        git("config", "rerere.enabled", "true", cwd=self.path)

    def pick_again(self, commit: str) -> list[str]:
        """Pick a commit that conflicts, and write what was made of the same conflict before.

        Returns the paths with such a resolution. They stay unmerged until the user adds them.
        """
        options = ("cherry-pick", "--allow-empty", commit)
        picked = run_git(*_REMEMBER, *options, cwd=self.path, ok=range(256))
        return [path.decode("utf-8", "replace") for path in _REPLAYED.findall(picked.stderr)]

    def commit_as(self, commit: str) -> None:
        """Commit the index with author and message of ``commit``, and remember the resolution."""
        options = ("--quiet", "--no-verify", "--cleanup=verbatim", "--reuse-message", commit)
        self.git(*_REMEMBER, "commit", *options)

    def offer_message(self, commit: str) -> None:
        """Make the message of ``commit`` what a plain `git commit` takes, without git's notes."""
        message = self.git("log", "-1", "--format=%B", "--encoding=UTF-8", commit)
        (self.path / ".git" / "MERGE_MSG").write_bytes(message)

    def has(self, commit: str, path: str) -> bool:
        """Return whether a commit has a file or folder of that path."""
        return bool(self.git("ls-tree", "-z", commit, "--", f":(top,literal){path}"))

    def log(self, base: str, tip: str) -> list[str]:
        """Return the commits after ``base`` up to ``tip``, oldest first."""
        span = f"{base}..{tip}"
        return self.git("rev-list", "--reverse", "--first-parent", span).decode().split()

    def log_trees(self, base: str, tip: str) -> list[tuple[str, str]]:
        """Return commit and tree of everything after ``base`` up to ``tip``, oldest first."""
        options = ("--format=%H %T", "--reverse", "--first-parent")
        rows = self.git("log", *options, f"{base}..{tip}").decode().splitlines()
        return [(commit, tree) for commit, tree in (row.split(" ") for row in rows)]

    def differing(self, old: str, new: str) -> frozenset[bytes]:
        """Return the paths that differ between two commits."""
        out = self.git("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new)
        return frozenset(out.split(b"\0")[:-1])

    def touched(self, commits: Sequence[str]) -> list[frozenset[bytes]]:
        """Return the paths that each commit changes against its parent."""
        if not commits:
            return []
        out = self.git(
            *("diff-tree", "--stdin", "-r", "-z", "--name-only", "--no-renames", "--always"),
            stdin="".join(f"{commit}\n" for commit in commits).encode(),
        )
        found: list[set[bytes]] = []
        for field in out.split(b"\0")[:-1]:
            # A commit id, then its paths, each a field of its own.
            if len(found) < len(commits) and field == commits[len(found)].encode():
                found.append(set())
            else:
                found[-1].add(field)
        return [frozenset(paths) for paths in found]

    def reverse_applies(self, patch: bytes, commit: str) -> bool:
        """Return whether the content of a patch is whole in ``commit``: its reverse applies."""
        return self._reversed(patch, commit) is not None

    def without(self, patch: bytes, commit: str) -> str | None:
        """Return a commit on ``commit`` that takes a patch back; None when that does not apply."""
        tree = self._reversed(patch, commit)
        return tree and self.text("commit-tree", tree, "-p", commit, "-m", "without")

    def _reversed(self, patch: bytes, commit: str) -> str | None:
        index = self.path / ".git" / "mxtree-index"
        env = {"GIT_INDEX_FILE": str(index)}
        git("read-tree", commit, cwd=self.path, env=env)
        options = ("--reverse", "--cached", "--whitespace=nowarn", "-p1")
        try:
            done = run_git(
                "apply", *options, "-", cwd=self.path, stdin=patch, env=env, ok=range(256)
            )
            if done.returncode:
                return None
            return git("write-tree", cwd=self.path, env=env).decode().strip()
        finally:
            index.unlink(missing_ok=True)

    def unmerged(self) -> list[str]:
        """Return the paths with conflicts that git still waits for, as they are shown."""
        return [shown(path) for path in self.unmerged_files()]

    def unmerged_files(self) -> list[str]:
        """Return the same as names of files, whose bytes may be no text."""
        out = self.git("diff", "--name-only", "--diff-filter=U", "-z")
        return [os.fsdecode(path) for path in out.split(b"\0")[:-1]]


def shown(path: str) -> str:
    """Return the name of a file as text that every terminal and file format takes."""
    return os.fsencode(path).decode("utf-8", "replace")
