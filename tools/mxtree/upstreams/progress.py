# SPDX-License-Identifier: Apache-2.0
"""Progress of a download on stderr: a bar on a terminal, a plain line elsewhere."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def show(label: str, total: int | None, done: int) -> Iterator[Callable[[int], None]]:
    """Show a transfer of ``total`` bytes, ``done`` of which are here; yields the counter."""
    if not sys.stderr.isatty():
        kept = f", {size(done)} of it kept from before" if done else ""
        print(f"fetching {label} ({size(total)}{kept})", file=sys.stderr, flush=True)
        yield lambda count: None  # noqa: ARG005  nothing to draw
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("fetching {task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(label, total=total, completed=done)
        yield lambda count: progress.advance(task, count)


def size(count: int | None) -> str:
    """Return a number of bytes as a person reads it."""
    if count is None:
        return "size unknown"
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"
