# SPDX-License-Identifier: Apache-2.0
"""Publishing a file or folder in one step: written aside, synced, then renamed."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def published_folder(destination: Path) -> Iterator[Path]:
    """A scratch folder beside ``destination`` that becomes it when the block succeeds.

    Raises FileExistsError when ``destination`` exists. After a failure the scratch is removed;
    after a crash it is left with a name that nothing mistakes for a checkpoint.
    """
    require_absent(destination)
    scratch = destination.with_name(f".{destination.name}.partial-{os.getpid()}")
    scratch.mkdir(parents=True)
    try:
        yield scratch
        sync_tree(scratch)
        require_absent(destination)
        scratch.rename(destination)
        sync_folder(destination.parent)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def require_absent(destination: Path) -> None:
    """Raise FileExistsError when something is at ``destination``."""
    if destination.exists() or destination.is_symlink():
        raise FileExistsError(f"{destination} exists: choose another name or remove it")


def sync_tree(folder: Path) -> None:
    """fsync every file and folder below ``folder`` and itself."""
    for path in sorted(folder.rglob("*")):
        sync_folder(path)
    sync_folder(folder)


def sync_folder(path: Path) -> None:
    """fsync a folder (its entries) or a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
