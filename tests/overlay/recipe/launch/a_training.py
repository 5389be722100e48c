# SPDX-License-Identifier: Apache-2.0
"""A run of two ranks without a model: counts steps, keeps the count, does what the test asks for.

``a_training --run-dir=RUN``, with the behaviour in $BEHAVIOUR. It keeps to the contract of the
trainer: metrics.jsonl, the tracker of checkpoints, SIGTERM as a request to save and stop.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

RANK = int(os.environ["RANK"])
STOPPED: list[int] = []


def log(run: Path, event: str, **fields: object) -> None:
    if RANK == 0:
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"event": event, **fields}) + "\n")


def save(run: Path, step: int) -> None:
    if RANK == 0:
        tracker = run / "checkpoints" / "latest_checkpointed_iteration.txt"
        tracker.parent.mkdir(exist_ok=True)
        tracker.write_text(str(step))


def start_of(run: Path) -> int:
    tracker = run / "checkpoints" / "latest_checkpointed_iteration.txt"
    return int(tracker.read_text()) if tracker.exists() else 0


def meet(run: Path) -> None:
    """Wait for the other rank: what it does must not depend on who starts first."""
    (run / f"here-{RANK}").write_text(str(Path.cwd()))
    while not (run / f"here-{1 - RANK}").exists():
        time.sleep(0.01)


def misbehave(behaviour: str, step: int) -> None:
    if RANK == 1 and step == 3:
        if behaviour == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if behaviour == "raises":
            raise RuntimeError("a tensor of rank 1 is not finite")
    if RANK == 0 and behaviour == "killed" and step == 3:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as a rank that waits in a collective
        time.sleep(60)


def main(run: Path, behaviour: str) -> int:
    signal.signal(signal.SIGTERM, lambda number, _frame: STOPPED.append(number))
    if behaviour == "check":
        print("a check failed on this rank")
        return 1 if RANK == 1 else 0
    if behaviour == "worded" and RANK == 1:
        print("a warning\nrank 1: error: another architecture:\n  hidden_size: 1 != 2")
        return 2
    if behaviour == "broken":
        raise ValueError("no such layer")
    first = start_of(run)
    meet(run)
    log(run, "attempt", step=first)
    os.write(1, b"written below Python\n")
    if behaviour == "loader" and RANK == 1:
        child = subprocess.Popen(["sleep", "300"])
        (run / "loader.pid").write_text(str(child.pid))
    last = 10_000 if behaviour == "endless" else 6
    for step in range(first + 1, last + 1):
        if behaviour == "endless" or step > 3:
            time.sleep(0.05)
        if first == 0:
            misbehave(behaviour, step)
        log(run, "train", step=step, loss=1 / step)
        if STOPPED:
            save(run, step)
            log(run, "stop", step=step, reason="received SIGTERM")
            return 0
        if step == 2:
            save(run, step)
    print(f"rank {RANK} is at the end", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1].removeprefix("--run-dir=")), os.environ["BEHAVIOUR"]))
