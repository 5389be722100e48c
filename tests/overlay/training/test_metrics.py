# SPDX-License-Identifier: Apache-2.0
"""metrics.jsonl survives a run that died while writing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mxflux.training.metrics import MetricsLog, next_attempt, read_metrics

if TYPE_CHECKING:
    from pathlib import Path


def test_events_are_appended_and_readable_at_once(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    log.write("attempt", attempt=1, step=0)
    log.write("train", step=1, loss=0.5)
    assert [event["event"] for event in read_metrics(tmp_path)] == ["attempt", "train"]
    assert read_metrics(tmp_path)[1]["loss"] == 0.5
    assert read_metrics(tmp_path)[1]["time"] > 0
    log.close()
    assert next_attempt(tmp_path) == 2


def test_an_incomplete_line_is_cut_and_the_rest_kept(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"event": "train", "step": 1}\n{"event": "tra', "utf-8")
    assert len(read_metrics(tmp_path)) == 1
    log = MetricsLog(tmp_path)
    log.write("train", step=2)
    log.close()
    assert [json.loads(line)["step"] for line in path.read_text("utf-8").splitlines()] == [1, 2]


def test_another_rank_writes_nothing(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, enabled=False)
    log.write("train", step=1)
    log.close()
    assert list(tmp_path.iterdir()) == []
    assert next_attempt(tmp_path) == 1
