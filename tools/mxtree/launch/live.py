# SPDX-License-Identifier: Apache-2.0
"""What a run prints, on a terminal: one live line for its steps, everything else above it.

Ranks write to files, so they cannot know that someone is looking on; who launches them can.
"""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: A step as the trainer prints it where there is no terminal.
_STEP = re.compile(r"\[[\d:]+\] step (\d+)/(\d+) \| (.*)")

_BAR_WIDTH = 16


@contextmanager
def streams(out: TextIO, err: TextIO) -> Iterator[tuple[TextIO, TextIO]]:
    """Give streams for what rank 0 prints and for notes: ``out`` and ``err`` without a terminal."""
    if not out.isatty():
        yield out, err
        return
    terminal = LiveTerminal(out, err)
    try:
        yield cast("TextIO", _To(terminal.show)), cast("TextIO", _To(terminal.note))
    finally:
        terminal.show("\n" if terminal.is_within_a_line else "")
        terminal.stop()


class LiveTerminal:
    """A terminal with a bar at its end while steps are reported."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._console = Console(file=out)
        self._err = err
        self._rest = ""
        self._bar: tuple[Progress, TaskID] | None = None

    @property
    def is_within_a_line(self) -> bool:
        """Whether the last piece ended before its line did, as a crashing rank's may."""
        return bool(self._rest)

    def show(self, text: str) -> None:
        """Take what the run printed, in pieces that may end within a line."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._line(line)

    def note(self, text: str) -> None:
        """Write what the launcher says; it speaks when no step is on its way."""
        self.stop()
        self._err.write(text)
        self._err.flush()

    def stop(self) -> None:
        """Leave the last state of the bar as a line, and the terminal as it was."""
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None

    def _line(self, line: str) -> None:
        found = _STEP.fullmatch(line)
        if found is None:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
            return
        step, steps, columns = found.groups()
        # The end first: a narrow terminal cuts the rest.
        *others, left = columns.split(" | ")
        text = " | ".join([left, *others])
        if self._bar is None:
            columns = (
                BarColumn(_BAR_WIDTH),
                MofNCompleteColumn(),
                TextColumn("{task.description}", markup=False),
            )
            bar = Progress(*columns, console=self._console)
            self._bar = bar, bar.add_task(text, total=int(steps))
            bar.start()
        bar, task = self._bar
        bar.update(task, completed=int(step), description=text)


class _To(io.TextIOBase):
    """A stream whose text goes to a function."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        self._take(text)
        return len(text)
