# SPDX-License-Identifier: Apache-2.0
"""Run as a script: whole training saves that die or find the disk full, each in a forked rank.

    checkpoint_crashes.py killed FOLDER ROUNDS     SIGKILL after a random time, again and again
    checkpoint_crashes.py full FOLDER              no room: at every size, and at every operation

Prints JSON. Megatron is imported once; the forks inherit it.
"""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

warnings.simplefilter("ignore")

from mxflux.training.cpu_device import enable  # noqa: E402

enable(despite_cuda=True)
sys.modules["transformer_engine"] = None  # type: ignore[assignment]

from checkpoint_run import Run, start  # noqa: E402

from mxflux.checkpoint.errors import CheckpointError  # noqa: E402
from mxflux.checkpoint.locate import locate  # noqa: E402
from mxflux.checkpoint.tracker import TRACKER, read_tracker  # noqa: E402
from mxflux.checkpoint.training import AsyncSaves  # noqa: E402
from mxflux.checkpoint.verify import verify  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.symlink")
LIMITS = (0, 100, 3_000, 30_000, 300_000, 2_000_000)
"""Largest file that may be written: from none to nearly all of the data."""


def fork(action: Callable[[], object]) -> int:
    """Start a rank of a group of one in a process group of its own; returns its id."""
    child = os.fork()
    if child:
        return child
    os.setpgid(0, 0)
    start_rank()
    action()
    sys.exit(0)


def start_rank() -> None:
    """Become the only rank of a group."""
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    start()


def status_of(child: int) -> int:
    """Exit status, or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def save_for_ever(run_dir: Path, background: bool) -> None:
    """Resume if there is something to resume; then step and save without end."""
    run = Run()
    if (run_dir / "checkpoints" / TRACKER).exists():
        run.load(run_dir)
    saves = AsyncSaves() if background else None
    while True:
        run.train(1)
        run.save(run_dir, keep=2, saves=saves)


def killed(run_dir: Path, rounds: int) -> list[dict[str, Any]]:
    """Kill the writer and its helpers at a random time, look, and let the next one resume."""
    chance = random.Random(7)
    outcomes = []
    for number in range(rounds):
        before = latest(run_dir)
        child = fork(lambda n=number: save_for_ever(run_dir, background=n % 2 == 1))  # type: ignore[misc]
        wait_for(lambda b=before: latest(run_dir) > b)  # type: ignore[misc]
        time.sleep(chance.uniform(0.0, 0.6))
        os.killpg(child, signal.SIGKILL)
        ended = status_of(child)
        verify(locate(run_dir))
        verify(run_dir / "latest")
        outcomes.append({"ended": ended, "before": before, "latest": latest(run_dir)})
    return outcomes


def full(run_dir: Path) -> dict[str, Any]:
    """Save once; then fail to save again for want of room, at every size and operation."""
    start_rank()
    run = Run()
    run.train(1)
    run.save(run_dir)
    run.train(1)
    sizes = [limited(run, run_dir, largest) for largest in LIMITS]
    disk = FullDisk(run_dir)
    sys.addaudithook(disk.hook)
    operations: list[dict[str, Any]] = []
    while not operations or operations[-1]["ended"] != "saved":
        disk.room = len(operations)
        operations.append(attempt(run, run_dir, disk))
    return {"sizes": sizes, "operations": operations}


def limited(run: Run, run_dir: Path, largest: int) -> dict[str, Any]:
    """Save where no file may grow beyond ``largest`` bytes, in any process."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
    try:
        return attempt(run, run_dir, None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)


def attempt(run: Run, run_dir: Path, disk: FullDisk | None) -> dict[str, Any]:
    """How a save ended, and what the run directory holds afterwards."""
    ended = "saved"
    if disk is not None:
        disk.used = 0
    try:
        run.save(run_dir)
    except (CheckpointError, OSError) as error:
        ended = str(error)
    if disk is not None:
        disk.used = None
    verify(locate(run_dir))
    verify(run_dir / "latest")
    names = sorted(p.name for p in (run_dir / "checkpoints").iterdir())
    found = {"ended": ended, "latest": latest(run_dir), "names": names}
    if found["latest"] == run.iteration and ended != "saved":
        run.train(1)  # named as the latest already: the next attempt saves the next step
    return found


class FullDisk:
    """Lets some operations write into a folder, and no more: an audit hook sees them all."""

    def __init__(self, folder: Path) -> None:
        self.folder = os.fspath(folder)
        self.room = 0
        self.used: int | None = None
        """Operations so far; None: the disk is not full."""

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Raise ENOSPC when there is no more room."""
        if self.used is None or event not in EVENTS or self.folder not in str(arguments[0]):
            return
        if writes(event, arguments):
            self.used += 1
            if self.used > self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(arguments[0]))


def writes(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether an operation needs room: reading and removing do not."""
    if event == "open":
        mode, flags = arguments[1], arguments[2]
        return bool(flags & (os.O_WRONLY | os.O_RDWR)) or any(c in str(mode) for c in "wxa+")
    return event in {"os.rename", "os.mkdir", "os.symlink"}


def latest(run_dir: Path) -> int:
    """What the tracker names, 0 when there is none."""
    root = run_dir / "checkpoints"
    return read_tracker(root) if (root / TRACKER).exists() else 0


def wait_for(condition: Callable[[], bool]) -> None:
    """Poll for a minute."""
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("no checkpoint within a minute")
        time.sleep(0.02)


if __name__ == "__main__":
    what, folder, *rest = sys.argv[1:]
    result = killed(Path(folder), int(rest[0])) if what == "killed" else full(Path(folder))
    print(json.dumps(result))
