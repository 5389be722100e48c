# SPDX-License-Identifier: Apache-2.0
"""Read the files of commits, each once."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from mxtree.drift.definitions import Module
from mxtree.git import git, run_git

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mxtree.drift.definitions import Name


class Trees:
    """The commits of one repository."""

    def __init__(self, repo: Path) -> None:
        self.repo = repo
        self._ids: dict[tuple[str, str], str | None] = {}
        self._modules: dict[str, Module] = {}
        self._paths: dict[str, frozenset[str]] = {}

    def paths(self, commit: str) -> frozenset[str]:
        """Return every file path of a commit."""
        if commit not in self._paths:
            out = git("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit, cwd=self.repo)
            names = out.split(b"\0")[:-1]
            self._paths[commit] = frozenset(n.decode("utf-8", "surrogateescape") for n in names)
        return self._paths[commit]

    def module(self, commit: str, path: str) -> Module | None:
        """Return a file of a commit; None when it has no such file."""
        blob = self._id(commit, path)
        if blob is None:
            return None
        if blob not in self._modules:
            self._modules[blob] = Module.parse(git("cat-file", "blob", blob, cwd=self.repo))
        return self._modules[blob]

    def find(self, commit: str, path: str, name: Name) -> list[str] | None:
        """Return the lines of a definition in a commit; None when it is not there."""
        module = self.module(commit, path)
        return module.find(name) if module else None

    def is_readable(self, commit: str, path: str) -> bool:
        """Return False for a file that is there and cannot be parsed."""
        module = self.module(commit, path)
        return module is None or module.spans is not None

    def _id(self, commit: str, path: str) -> str | None:
        key = (commit, path)
        if key not in self._ids:
            found = run_git(
                "--literal-pathspecs",
                *("ls-tree", "-z", "--full-tree", commit, "--", path),
                cwd=self.repo,
            )
            kind, _, row = found.stdout.partition(b"\t")[0].partition(b" ")[2].partition(b" ")
            self._ids[key] = row.decode() if kind == b"blob" else None
        return self._ids[key]

    def renamed(self, old: str, new: str, path: str) -> str | None:
        """Return where git finds a file of ``old`` in ``new``; None when it finds it nowhere."""
        return self._renames(old, new).get(path)

    @cache  # noqa: B019  a few repositories a run, and the run ends
    def _renames(self, old: str, new: str) -> dict[str, str]:
        options = ("-r", "-M", "-z", "--diff-filter=R", "--name-status", "-l0")
        out = git("diff-tree", *options, old, new, cwd=self.repo)
        fields = [field.decode("utf-8", "surrogateescape") for field in out.split(b"\0")[:-1]]
        return dict(zip(fields[1::3], fields[2::3], strict=True))

    def mentioning(self, commit: str, word: str) -> list[str]:
        """Return the Python files of a commit that hold a word."""
        options = ("-l", "-z", "-w", "--fixed-strings", "--full-name", "-e", word)
        found = run_git("grep", *options, commit, "--", ":(top)*.py", cwd=self.repo, ok=(0, 1))
        names = found.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]
        return [name.removeprefix(f"{commit}:") for name in names]

    def history(self, start: str, end: str, paths: Iterable[str]) -> list[str]:
        """Return the commits after ``start`` up to ``end`` that change a path, oldest first.

        A merge counts as one change: that against its first parent.
        """
        options = ("--reverse", "--first-parent", f"{start}..{end}")
        listed = git("--literal-pathspecs", "rev-list", *options, "--", *paths, cwd=self.repo)
        return listed.decode().split()
