# SPDX-License-Identifier: Apache-2.0
"""Put a finished folder in the place of another in one step, and survive being killed."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextmanager
def staging(target: Path) -> Iterator[Path]:
    """Yield a new folder beside ``target`` to build in; it is gone afterwards, whatever happens.

    The caller holds the lock of ``target``, so leftovers of a killed run are nobody's and go first.
    """
    stage = _stage(target)
    recover(target)
    stage.mkdir(parents=True)
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def replace(stage: Path, target: Path) -> None:
    """Make ``stage`` the new ``target``; an old ``target`` ends up at ``stage``.

    With renameat2(RENAME_EXCHANGE) there is no moment without a whole tree at ``target``. Elsewhere
    the old tree is set aside for the time of one rename, and `recover` brings it back.
    """
    if not target.exists():
        stage.rename(target)
    elif not _exchange(stage, target):
        aside = _aside(target)
        target.rename(aside)
        stage.rename(target)
        aside.rename(stage)


def recover(target: Path) -> None:
    """Finish or undo a `replace` that was killed between its renames; clear what was staged."""
    shutil.rmtree(_stage(target), ignore_errors=True)
    aside = _aside(target)
    if aside.exists():
        if target.exists():
            shutil.rmtree(aside)
        else:
            aside.rename(target)


def _stage(target: Path) -> Path:
    return target.with_name(f".{target.name}.stage")


def _aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.old")


def _exchange(first: Path, second: Path) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    names = os.fsencode(first), os.fsencode(second)
    if renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}:
        return False
    raise OSError(code, os.strerror(code), str(first), None, str(second))
