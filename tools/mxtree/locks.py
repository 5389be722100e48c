# SPDX-License-Identifier: Apache-2.0
"""Locks that can say who holds them."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds to wait for another mxtree; a warm build takes about two.
DEFAULT_TIMEOUT_S = 30.0


@contextmanager
def hold(target: Path, *, timeout_s: float | None = None) -> Iterator[None]:
    """Hold the lock of ``target`` (a file or folder, existing or not) while the body runs.

    The lock file is ``.<target>.lock`` beside the target, so that replacing the target keeps it.
    The operating system drops the lock when the process dies, also by SIGKILL. Raises
    `FatalError` naming the holder when it is still taken after ``timeout_s``
    (`DEFAULT_TIMEOUT_S`) seconds.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    path = target.with_name(f".{target.name}.lock")
    holder = target.with_name(f".{target.name}.lock.holder")
    lock = FileLock(path, timeout=DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s)
    try:
        lock.acquire()
    except Timeout as error:
        raise FatalError(
            f"{target} is in use by {_read_holder(holder)}",
            hint="wait for it to end, or end it, then run the same command again",
            code=ExitCode.COULD_NOT_CHECK,
        ) from error
    try:
        holder.write_text(json.dumps(_describe_self()), encoding="utf-8")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _describe_self() -> dict[str, str | int]:
    return {
        "pid": os.getpid(),
        "host": platform.node(),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def _read_holder(path: Path) -> str:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "another mxtree process that did not leave its name"
    return "`{command}` (process {pid} on {host}, since {since})".format(**found)
