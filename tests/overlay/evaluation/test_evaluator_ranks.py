# SPDX-License-Identifier: Apache-2.0
"""29,696 samples on two gloo ranks: counted, the same bits on both, a shortfall on both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, Any], ...]]:
    """What both ranks saw, by case (see ``evaluation_ranks``)."""
    store = tmp_path_factory.mktemp("ranks") / "store"
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[2] / "overlay")}
    ranks = [
        subprocess.Popen(
            [sys.executable, "evaluation_ranks.py", str(rank), "2", str(store)],
            cwd=HERE, env={**environment, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=200)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], "\n".join(outputs)
    first, second = (json.loads(Path(f"{store}.{rank}").read_text()) for rank in range(2))
    return {case: (first[case], second[case]) for case in first}


@pytest.mark.parametrize("case", ["whole", "pad", "mask", "short"])
def test_both_ranks_see_the_same_bits(
    found: dict[str, tuple[dict[str, Any], ...]], case: str
) -> None:
    first, second = found[case]
    assert first == second


def test_every_sample_is_counted(found: dict[str, tuple[dict[str, Any], ...]]) -> None:
    whole = found["whole"][0]
    assert whole["count"] == 29_696
    assert whole["timesteps"] == {str(level): 3_712 for level in range(8)}
    assert whole["batches"] == 29


@pytest.mark.parametrize("case", ["pad", "mask"])
def test_a_width_that_does_not_divide_still_counts_exactly(
    found: dict[str, tuple[dict[str, Any], ...]], case: str
) -> None:
    assert (found[case][0]["count"], found[case][0]["batches"]) == (29_696, 15)


def test_one_rank_that_ends_early_is_an_error_on_both(
    found: dict[str, tuple[dict[str, Any], ...]],
) -> None:
    assert "counted 28672 samples instead of 29696" in found["short"][0]["error"]
