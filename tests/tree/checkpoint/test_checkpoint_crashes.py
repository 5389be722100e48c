# SPDX-License-Identifier: Apache-2.0
"""Saves that are killed, or find the disk full, leave the checkpoint before them whole."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("checkpoint_crashes.py")


def run(tmp_path: Path, *arguments: str) -> Any:
    """What the script prints."""
    path = os.pathsep.join(filter(None, sys.path))
    printed, said = tmp_path / "printed", tmp_path / "said"
    with printed.open("w") as output, said.open("w") as errors:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(SCRIPT), *arguments],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdout=output,
            stderr=errors,
            timeout=400,
            check=False,
        )
    assert done.returncode == 0, said.read_text()[-4000:]
    return json.loads(printed.read_text().splitlines()[-1])


def test_a_run_killed_at_random_times_always_resumes(tmp_path: Path) -> None:
    """Each round resumes what the round before left, saves on, and is killed; every second one
    saves in the background. The script verifies tracker and link after each."""
    outcomes = run(tmp_path, "killed", str(tmp_path / "run"), "5")
    assert [outcome["ended"] for outcome in outcomes] == [-signal.SIGKILL] * 5
    for earlier, later in itertools.pairwise(outcomes):
        assert later["before"] == earlier["latest"]
        assert later["latest"] > later["before"]


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    """No file may grow beyond a size, then the n-th operation fails: the script verifies tracker
    and link after each."""
    result = run(tmp_path, "full", str(tmp_path / "run"))
    for outcome in result["sizes"]:
        assert "File too large" in outcome["ended"] or "not saved" in outcome["ended"]
        assert "iter_0000001 is still the latest" in outcome["ended"]
        assert outcome["names"] == ["iter_0000001", "latest_checkpointed_iteration.txt"]
    *failed, survived = result["operations"]
    assert len(failed) > 6
    for outcome in failed:  # Megatron tells of its writers' errors no more than their class
        assert re.search("No space left on device|not saved.*'OSError'", outcome["ended"])
    # Only what comes after the tracker, the `latest` link, fails with the new one named.
    assert [o["latest"] for o in failed] == sorted(o["latest"] for o in failed)
    assert failed[0]["latest"] == 1
    assert survived["ended"] == "saved"
    assert not any(name.startswith(".") for o in result["operations"] for name in o["names"])
