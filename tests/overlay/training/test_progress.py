# SPDX-License-Identifier: Apache-2.0
"""What a person sees: plain lines in a log, a live line on a terminal, nothing on other ranks."""

from __future__ import annotations

import io

from mxflux.training.progress import Progress, Report

REPORT = Report(
    step=30, steps=300, loss=0.51234, learning_rate=2e-4, images_per_second=12.5, tflops=345.6,
    peak_share=0.349, seconds_left=3723,
)  # fmt: skip


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_log_gets_one_plain_line() -> None:
    stream = io.StringIO()
    Progress(300, stream=stream).report(REPORT)
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert line.split("] ", 1)[1] == (
        "step 30/300 | loss 0.5123 | lr 2.00e-04 | 12.50 images/s per device | "
        "346 TFLOP/s per device (34.9% of peak) | ETA 1:02:03\n"
    )


def test_no_share_where_the_peak_is_unknown() -> None:
    columns = Report(1, 2, 0.5, 1e-3, 1.0, 2.0, None, 0).columns()
    assert "2 TFLOP/s per device" in columns


def test_a_terminal_gets_a_live_line_and_notes() -> None:
    stream = Terminal()
    progress = Progress(300, stream=stream)
    progress.note("evaluation after step 30")
    progress.report(REPORT)
    progress.close()
    assert "evaluation after step 30" in stream.getvalue()


def test_other_ranks_stay_silent() -> None:
    stream = io.StringIO()
    progress = Progress(300, enabled=False, stream=stream)
    progress.report(REPORT)
    progress.note("anything")
    progress.close()
    assert stream.getvalue() == ""
