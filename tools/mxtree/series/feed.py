# SPDX-License-Identifier: Apache-2.0
"""A git process that reads its standard input while the caller is still making it."""

from __future__ import annotations

import subprocess
import tempfile
from typing import TYPE_CHECKING, NoReturn

from mxtree.git import GitError, GitResult, hermetic_env

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class Feed:
    """Started by its constructor, ended by `finish` (or `abandon`, when the caller failed)."""

    def __init__(self, args: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> None:
        self._args = tuple(args)
        # A file, not a pipe: git could fill a pipe while this side only writes.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  closed when the process ends
        self._process = subprocess.Popen(
            ["git", *args],
            cwd=cwd,
            env=hermetic_env(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
        )

    def write(self, data: bytes) -> None:
        """Send ``data``. Raises `GitError`, with what git said, when it has ended early."""
        pipe = self._process.stdin
        if pipe is None or pipe.closed:
            raise ValueError("this feed is finished")
        try:
            pipe.write(data)
        except BrokenPipeError:
            self._fail()

    def finish(self) -> None:
        """End the input and wait. Raises `GitError` when git failed."""
        self._process.communicate()
        if self._process.returncode:
            self._fail()
        self._stderr.close()

    def abandon(self) -> None:
        """End the input and wait, whatever git thinks of it; do nothing after `finish`."""
        self._process.communicate()
        self._stderr.close()

    def _fail(self) -> NoReturn:
        self._process.communicate()
        self._stderr.seek(0)
        said = self._stderr.read()
        self._stderr.close()
        raise GitError(GitResult(self._args, self._process.returncode, b"", said))
