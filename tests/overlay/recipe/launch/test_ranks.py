# SPDX-License-Identifier: Apache-2.0
"""Which rank began it: from torchrun's summaries as torch 2.13 and older releases print them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mxflux.recipe.launch.ranks import Failure, RankNote, first_failure

NOTES = [RankNote(rank, 100 + rank, "here", 0.0) for rank in range(3)]


def entry(rank: int, code: int, time: str = "2026-11-30_20:00:01") -> str:
    return (
        f"  time      : {time}\n  host      : here\n"
        f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {100 + rank})\n"
        "  error_file: <N/A>\n"
    )


def summary(root: str, *others: str) -> str:
    listed = "".join(f"[{n}]:\n{text}" for n, text in enumerate(others, 1))
    others = listed or "  <NO_OTHER_FAILURES>"
    return f"Failures:\n{others}\n---\nRoot Cause (first observed failure):\n[0]:\n{root}"


def ended(*codes: tuple[int, int, float]) -> list[RankNote]:
    notes = list(NOTES)
    for rank, code, at in codes:
        notes[rank] = replace(notes[rank], exit_code=code, finished=at)
    return notes


@pytest.mark.parametrize(
    ("notes", "output", "expected"),
    [
        pytest.param(ended((1, 3, 5.0)), summary(entry(1, 3)), Failure(1, 3), id="one raised"),
        pytest.param(NOTES, summary(entry(1, -9)), Failure(1, -9), id="one was killed"),
        pytest.param(
            ended((0, 3, 5.0)), summary(entry(0, 3), entry(1, -9)), Failure(1, -9),
            id="killed, and another raised because of it",
        ),
        pytest.param(
            ended((0, 3, 6.0), (2, 3, 5.0)), summary(entry(0, 3), entry(2, 3)), Failure(2, 3),
            id="two raised: the first",
        ),
        pytest.param(
            ended((1, 3, 5.0)), summary(entry(1, 3), entry(0, -15)), Failure(1, 3),
            id="torchrun stopped the other",
        ),
        pytest.param(
            [replace(NOTES[0], ended_by_launcher=True), *ended((1, 1, 5.0))[1:]],
            summary(entry(1, 1), entry(0, -9)), Failure(1, 1),
            id="the launcher killed the other",
        ),
        pytest.param(
            ended((1, 1, 5.0)),
            "Sending process 100 closing signal SIGTERM\n" + summary(entry(1, 1), entry(0, -9)),
            Failure(1, 1),
            id="torchrun killed the other, which did not end",
        ),
        pytest.param(NOTES, summary(entry(2, 1)), Failure(2, 1), id="before it left a note"),
        pytest.param([], "the address is in use", None, id="no rank at all"),
    ],
)  # fmt: skip
def test_the_first(notes: list[RankNote], output: str, expected: Failure | None) -> None:
    assert first_failure(notes, [output]) == expected


def test_the_first_of_many_nodes() -> None:
    early, late = "2026-11-30_20:00:01", "2026-11-30_20:00:09"
    outputs = [summary(entry(0, -15, early)), summary(entry(2, -11, late)), "no summary"]
    assert first_failure(NOTES, outputs) == Failure(2, -11)


def test_the_words() -> None:
    assert str(Failure(1, -9)) == "rank 1 was killed by SIGKILL"
    assert str(Failure(1, -200)) == "rank 1 was killed by signal 200"
    assert str(Failure(0, 3)) == "rank 0 ended with exit code 3"
