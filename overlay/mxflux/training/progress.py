# SPDX-License-Identifier: Apache-2.0
"""Progress on the terminal: a live line where there is one, else one plain line a log interval."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress


@dataclass(frozen=True)
class Report:
    """What is shown of a logged step."""

    step: int
    steps: int
    loss: float
    learning_rate: float
    images_per_second: float
    """Per GPU."""
    tflops: float
    """Per GPU."""
    peak_share: float | None
    seconds_left: float

    def columns(self) -> list[str]:
        """The parts of a line."""
        share = "" if self.peak_share is None else f" ({self.peak_share:.1%} of peak)"
        return [
            f"step {self.step}/{self.steps}",
            f"loss {self.loss:.4f}",
            f"lr {self.learning_rate:.2e}",
            f"{self.images_per_second:.2f} images/s per device",
            f"{self.tflops:.3g} TFLOP/s per device{share}",
            f"ETA {timedelta(seconds=round(self.seconds_left))}",
        ]


class Progress:
    """Shows reports and notes on ``stream``; on other ranks than 0 nothing."""

    def __init__(self, steps: int, *, enabled: bool = True, stream: TextIO | None = None) -> None:
        self.enabled = enabled
        self.stream = stream or sys.stdout
        self._steps = steps
        self._live: RichProgress | None = None
        self._task: Any = None
        if enabled and self.stream.isatty():
            self._live = _live_progress(self.stream)
            if self._live is not None:
                self._task = self._live.add_task("training", total=steps)
                self._live.start()

    def report(self, report: Report) -> None:
        """Show a logged step."""
        if not self.enabled:
            return
        if self._live is None:
            self._line(" | ".join(report.columns()))
        else:
            text = " | ".join(report.columns()[1:])
            self._live.update(self._task, completed=report.step, description=text)

    def note(self, text: str) -> None:
        """Show one line that stays."""
        if not self.enabled:
            return
        if self._live is None:
            self._line(text)
        else:
            self._live.console.print(text, highlight=False)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _line(self, text: str) -> None:
        print(f"[{time.strftime('%H:%M:%S')}] {text}", file=self.stream, flush=True)


def _live_progress(stream: TextIO) -> RichProgress | None:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Rich
    except ImportError:  # an image without rich gets plain lines
        return None
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    return Rich(*columns, console=Console(file=stream))
