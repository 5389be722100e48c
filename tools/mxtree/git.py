# SPDX-License-Identifier: Apache-2.0
"""One runner for git: argument list in, bytes in, bytes out, deaf to the user's configuration.

GitPython strips a trailing newline from output and passes stray ``GIT_*`` variables on, so
everything whose bytes matter (am, format-patch, apply, fast-import, cat-file) comes through here.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxtree.errors import NO_PLACE_HINT, ExitCode, FatalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: Identity of every commit that mxtree makes itself; a patch keeps its own author.
IDENTITY_NAME = "mxtree"
IDENTITY_EMAIL = "mxtree@mxtree.invalid"

#: `git am --quoted-cr` and `--empty=keep` (2.35) are the youngest options in use.
MINIMUM_GIT = (2, 35)

# Each key changes the bytes of a patch, the outcome of an apply, or runs a foreign program.
_CONFIG = {
    "am.threeWay": "false",
    "apply.whitespace": "nowarn",
    "commit.gpgSign": "false",
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.excludesFile": os.devnull,
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.quotePath": "true",
    "core.safecrlf": "false",
    "core.untrackedCache": "false",
    "diff.algorithm": "myers",
    "diff.context": "3",
    "diff.interHunkContext": "0",
    "diff.mnemonicPrefix": "false",
    "diff.noprefix": "false",
    "diff.renames": "true",
    "diff.suppressBlankEmpty": "false",
    "format.attach": "",
    "format.from": "false",
    "format.signOff": "false",
    "format.thread": "false",
    "format.useAutoBase": "false",
    "gc.auto": "0",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "init.defaultBranch": "main",
    "maintenance.auto": "false",
    "rerere.enabled": "false",
    "tag.gpgSign": "false",
}


#: What git says of a full or read-only disk, in the locale C that it always runs in.
_NO_PLACE = ("No space left on device", "unable to write", "Read-only file system", "Disk quota")


@dataclass(frozen=True)
class GitResult:
    """What one git process left behind."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes


class GitError(FatalError):
    """git exited with a status that the caller did not expect."""

    def __init__(self, result: GitResult) -> None:
        stderr = result.stderr.decode("utf-8", "replace").strip()
        is_over_limit = result.returncode == -signal.SIGXFSZ
        has_no_place = is_over_limit or any(said in stderr for said in _NO_PLACE)
        super().__init__(
            f"git {' '.join(result.argv)} failed with status {result.returncode}",
            details=stderr.splitlines()[-20:],
            hint=NO_PLACE_HINT if has_no_place else None,
            code=ExitCode.COULD_NOT_CHECK,
        )
        self.result = result


def hermetic_env(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment in which the same input gives the same bytes on every machine."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env |= {
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_AUTHOR_EMAIL": IDENTITY_EMAIL,
        "GIT_AUTHOR_NAME": IDENTITY_NAME,
        "GIT_COMMITTER_EMAIL": IDENTITY_EMAIL,
        "GIT_COMMITTER_NAME": IDENTITY_NAME,
        "GIT_CONFIG_COUNT": str(len(_CONFIG)),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_EDITOR": ":",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LANGUAGE": "C",
        "LC_ALL": "C",
        "TZ": "UTC",
    }
    for index, (key, value) in enumerate(_CONFIG.items()):
        env[f"GIT_CONFIG_KEY_{index}"] = key
        env[f"GIT_CONFIG_VALUE_{index}"] = value
    return env | dict(extra or {})


def run_git(
    *args: str | Path,
    cwd: Path | None = None,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    ok: Sequence[int] = (0,),
) -> GitResult:
    """Run ``git *args`` hermetically and return its result.

    ``cwd`` is passed as ``-C``; ``env`` is added to the hermetic environment. Raises `GitError`
    when the exit status is not in ``ok`` and `FatalError` when there is no git.
    """
    argv = [str(arg) for arg in args]
    location = ["-C", str(cwd)] if cwd is not None else []
    try:
        process = subprocess.run(
            ["git", *location, *argv],
            input=stdin,
            env=hermetic_env(env),
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise FatalError(
            "git was not found on PATH",
            hint=f"install git >= {'.'.join(map(str, MINIMUM_GIT))}",
            code=ExitCode.COULD_NOT_CHECK,
        ) from error
    result = GitResult(tuple(argv), process.returncode, process.stdout, process.stderr)
    if result.returncode not in ok:
        raise GitError(result)
    return result


def git(
    *args: str | Path,
    cwd: Path | None = None,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
) -> bytes:
    """Run git and return exactly the bytes of its standard output."""
    return run_git(*args, cwd=cwd, stdin=stdin, env=env).stdout


def shell_git(path: Path) -> str:
    """Return how a user types git for a repository: its path may hold blanks and quotes."""
    return f"git -C {shlex.quote(str(path))}"


def git_text(*args: str | Path, cwd: Path | None = None) -> str:
    """Run git for one short answer and return it without surrounding white space."""
    return git(*args, cwd=cwd).decode("utf-8").strip()
