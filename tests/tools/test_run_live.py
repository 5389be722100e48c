# SPDX-License-Identifier: Apache-2.0
"""What `mxtree run` shows: on a terminal a live line, elsewhere the run's lines as they are."""

from __future__ import annotations

import io

import pytest

from mxtree.launch.live import streams

STEP = "[12:00:0{0}] step {0}/3 | loss 0.{0} | lr 1.00e-03 | ETA 0:00:0{0}\n"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")


def test_without_a_terminal_nothing_is_changed() -> None:
    out, err = io.StringIO(), io.StringIO()
    with streams(out, err) as (console, notes):
        assert (console, notes) == (out, err)


def test_steps_share_a_line_and_the_rest_stays() -> None:
    out, err = Terminal(), io.StringIO()
    with streams(out, err) as (console, notes):
        print("mxtree: attempt 1", file=notes)
        console.write("[12:00:00] each evaluation: [64] samples\n" + STEP.format(1)[:20])
        console.write(STEP.format(1)[20:] + STEP.format(2))
        console.write("[12:00:02] checkpoint of step 2 in 0.1 s\n" + STEP.format(3))
        console.flush()
        print("mxtree: finished after step 3", file=notes)
    shown = out.getvalue()
    assert "[12:00:00] each evaluation: [64] samples\n" in shown
    assert "[12:00:02] checkpoint of step 2 in 0.1 s" in shown
    assert "step 3/3 |" not in shown
    last = shown.rpartition("3/3")[2]
    assert " ETA 0:00:03 | loss 0.3 | lr 1.00e-03\n" in last
    assert shown.endswith("\x1b[?25h"), "the cursor is there again"
    assert err.getvalue() == "mxtree: attempt 1\nmxtree: finished after step 3\n"


def test_an_error_ends_the_live_line() -> None:
    out = Terminal()
    with pytest.raises(OSError, match="full"), streams(out, io.StringIO()) as (console, _):
        console.write(STEP.format(1))
        raise OSError("full")
    assert out.getvalue().endswith("\x1b[?25h")


def test_the_last_words_of_a_rank_are_shown() -> None:
    out = Terminal()
    with streams(out, io.StringIO()) as (console, _):
        console.write(STEP.format(1) + "killed [in the middle] of")
    assert "killed [in the middle] of\n" in out.getvalue()


def test_brackets_in_a_step_are_text() -> None:
    out = Terminal()
    with streams(out, io.StringIO()) as (console, _):
        console.write(STEP.format(3).replace("loss 0.3", "note [/x] [y]"))
    assert "note [/x] [y]" in out.getvalue()
