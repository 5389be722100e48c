# SPDX-License-Identifier: Apache-2.0
"""Kill the ranks of a run at random moments, many times, and compare its losses with a whole run's.

    export PYTHONPATH=overlay:trees/default/megatron-lm
    python benchmarks/killed_runs.py recipes/cpu/flux_tiny.yaml --kills 10 \\
        --output docs/results/killed-runs.md schedule.train_iters=100 ...

Every attempt starts all ranks anew from the newest checkpoint. A moment is a random step of those
still to come and a random delay after it; then all ranks, or a random one, get SIGKILL.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mxflux.recipe.loading import load

GRACE_SECONDS = 60


class Attempt:
    """All ranks of a run, started once."""

    def __init__(self, run: Path, world: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        self.run = run
        self.ranks = [self._start(rank, world, port) for rank in range(world)]

    def _start(self, rank: int, world: int, port: str) -> subprocess.Popen[bytes]:
        places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": port}
        environment = os.environ | {key: str(value) for key, value in places.items()}
        environment |= {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
        with (self.run / f"rank-{rank}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "mxflux.training.main", "--run-dir", str(self.run)],
                env=environment,
                stdout=log,
                stderr=log,
            )

    def wait_for(self, step: int) -> bool:
        """Whether ``step`` was reached before the ranks ended."""
        while newest_step(self.run) < step:
            if all(rank.poll() is not None for rank in self.ranks):
                return False
            time.sleep(0.05)
        return True

    def kill(self, numbers: list[int]) -> None:
        """SIGKILL some ranks; the others end by themselves, or are killed after a grace."""
        for number in numbers:
            self.ranks[number].send_signal(signal.SIGKILL)
        deadline = time.monotonic() + GRACE_SECONDS
        while any(rank.poll() is None for rank in self.ranks) and time.monotonic() < deadline:
            time.sleep(0.05)
        for rank in self.ranks:
            rank.kill()
            rank.wait()

    def finish(self) -> None:
        """Wait for the end; raises RuntimeError when a rank failed."""
        codes = [rank.wait() for rank in self.ranks]
        if any(codes):
            tail = (self.run / "rank-0.log").read_text("utf-8", "replace")[-3000:]
            raise RuntimeError(f"ranks ended with {codes}:\n{tail}")


def read_events(run: Path) -> list[dict[str, Any]]:
    """Complete events of metrics.jsonl."""
    path = run / "metrics.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def newest_step(run: Path) -> int:
    """Newest trained step of the newest attempt."""
    step = 0
    for event in read_events(run):
        if event["event"] in {"attempt", "train"}:
            step = event["step"]
    return step


def losses(run: Path) -> dict[str, tuple[float, ...]]:
    """Every loss and gradient norm; of a step that was made again, the newest."""
    found: dict[str, tuple[float, ...]] = {}
    for event in read_events(run):
        if event["event"] == "train":
            found[f"step {event['step']}"] = (event["loss"], event["grad_norm"], event["lr"])
        if event["event"] == "evaluation":
            found[f"evaluation {event['step']}"] = (event["loss"],)
    return found


def kill_many(run: Path, world: int, steps: int, kills: int) -> list[dict[str, Any]]:
    """Kill ``kills`` attempts, let the last one finish; returns what happened."""
    told = []
    chance = random.SystemRandom()
    for number in range(1, kills + 1):
        start = checkpointed(run)
        room = max(1, (steps - start) // (kills - number + 2))
        target = min(steps - 1, start + chance.randint(1, 2 * room))
        attempt = Attempt(run, world)
        reached = attempt.wait_for(target)
        delay = chance.uniform(0, 0.5)
        time.sleep(delay)
        victims = chance.choice([list(range(world)), [chance.randrange(world)]])
        attempt.kill(victims)
        told.append(
            {"kill": number, "from": start, "target": target, "delay": delay, "victims": victims,
             "reached": reached, "newest": newest_step(run), "saved": checkpointed(run)}
        )  # fmt: skip
        print(told[-1], flush=True)
    Attempt(run, world).finish()
    return told


def checkpointed(run: Path) -> int:
    """Step of the newest checkpoint, 0 without one."""
    tracker = run / "checkpoints" / "latest_checkpointed_iteration.txt"
    return int(tracker.read_text("ascii")) if tracker.exists() else 0


def write(path: Path, recipe: str, overrides: list[str], table: list[dict[str, Any]],
          compared: int, steps: int, made: int) -> None:  # fmt: skip
    """The result as Markdown."""
    command = f"python benchmarks/killed_runs.py {recipe} --kills {len(table)}"
    lines = [
        "# Killed runs",
        "",
        "Two gloo ranks of the tiny Flux on two shared CPU cores, killed with SIGKILL at random",
        "moments and started again from the newest checkpoint; then compared with a run that",
        "nothing interrupted.",
        "",
        f"    {command} {' '.join(overrides)}",
        "",
        "| kill | started after step | killed after | seconds later | ranks | checkpoint then |",
        "|--:|--:|--:|--:|---|--:|",
    ]
    lines += [
        f"| {row['kill']} | {row['from']} | {row['newest']} | {row['delay']:.2f} | "
        f"{', '.join(map(str, row['victims']))} | {row['saved']} |"
        for row in table
    ]
    lines += [
        "",
        f"{made} steps were made for the {steps} of the recipe. All {compared} steps and",
        "evaluations (loss, gradient norm, learning rate, validation loss) are equal bit for bit",
        "to those of the run without a kill.",
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def main() -> int:
    """Run both and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--output", type=Path)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args()
    loaded = load(options.recipe, options.overrides)
    world, steps = loaded.recipe.world_size, loaded.recipe.schedule.train_iters
    with tempfile.TemporaryDirectory() as folder:
        whole, killed = Path(folder, "whole"), Path(folder, "killed")
        for run in (whole, killed):
            run.mkdir()
            (run / "recipe.yaml").write_bytes(loaded.dump_resolved())
        Attempt(whole, world).finish()
        table = kill_many(killed, world, steps, options.kills)
        expected, found = losses(whole), losses(killed)
        made = sum(event["event"] == "train" for event in read_events(killed))
    different = sorted(key for key in expected if found.get(key) != expected[key])
    if different or found.keys() != expected.keys():
        print(f"DIFFERENT: {different[:10]}")
        return 1
    print(f"equal: {len(expected)} values, {made} steps made for {steps}")
    if options.output:
        write(options.output, options.recipe, options.overrides, table, len(expected), steps, made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
