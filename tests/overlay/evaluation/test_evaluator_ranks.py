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


def evaluate(
    tmp_path: Path, *, missing: int = 0, remainder: str = "refuse", size: int = 512
) -> list[dict[str, Any]]:
    store = tmp_path / "store"
    overlay = str(Path(__file__).parents[3] / "overlay")
    environment = {**os.environ, "PYTHONPATH": overlay, "OMP_NUM_THREADS": "1"}
    arguments = ["2", str(store), str(missing), remainder, str(size)]
    ranks = [
        subprocess.Popen(
            [sys.executable, "evaluation_ranks.py", str(rank), *arguments],
            cwd=HERE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=120)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], "\n".join(outputs)
    return [json.loads(Path(f"{store}.{rank}").read_text()) for rank in range(2)]


def test_every_sample_is_counted_and_both_ranks_see_the_same_bits(tmp_path: Path) -> None:
    first, second = evaluate(tmp_path)
    assert first == second
    assert first["count"] == 29_696
    assert first["timesteps"] == {str(level): 3_712 for level in range(8)}
    assert first["batches"] == 29


@pytest.mark.parametrize("remainder", ["pad", "mask"])
def test_a_width_that_does_not_divide_still_counts_exactly(tmp_path: Path, remainder: str) -> None:
    first, second = evaluate(tmp_path, remainder=remainder, size=1_000)
    assert first == second
    assert (first["count"], first["batches"]) == (29_696, 15)


def test_one_rank_that_ends_early_is_an_error_on_both(tmp_path: Path) -> None:
    first, second = evaluate(tmp_path, missing=2)
    assert first == second
    assert "counted 28672 samples instead of 29696" in first["error"]
