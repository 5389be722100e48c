# SPDX-License-Identifier: Apache-2.0
"""A job of two nodes: the real command but for srun, which a script on PATH stands in for.

The script starts srun's command twice on this machine, hands SIGTERM on, and ends the job step when
one task fails, as srun does with --kill-on-bad-exit.
"""

from __future__ import annotations

import io
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mxflux
from mxflux.recipe.launch import argv, progress, record, supervise
from mxflux.recipe.launch.node import Grace, ThroughSrun
from mxflux.recipe.launch.supervise import Settings

if TYPE_CHECKING:
    from conftest import MakeRecipe

HERE = Path(__file__).parent
SRUN = """\
#!{python}
import signal, subprocess, sys, time
command = sys.argv[1:]
while command[0].startswith("--"):
    command.pop(0)
tasks = [subprocess.Popen(command) for _ in range(2)]
signal.signal(signal.SIGTERM, lambda *_: [task.terminate() for task in tasks])
while None in [task.poll() for task in tasks]:
    time.sleep(0.1)
    if any(task.returncode for task in tasks):  # --kill-on-bad-exit
        time.sleep(1)
        [task.terminate() for task in tasks]
        break
sys.exit(max(abs(task.wait()) for task in tasks))
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin" / "srun"
    program.parent.mkdir()
    program.write_text(SRUN.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    paths = os.pathsep.join([str(Path(mxflux.__file__).parents[1]), str(HERE)])
    monkeypatch.setenv("PYTHONPATH", paths)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(argv, "TRAINER", "a_training")
    folder = tmp_path / "run"
    folder.mkdir()
    record.write(folder, {"format": 1, "attempts": [], "status": "new"})
    return folder


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def job(run: Path, recipe: MakeRecipe, behaviour: str, **settings: int) -> tuple[int, str]:
    launch = {"nproc_per_node": 1, "nodes": 2, "master_port": free_port()}
    found = recipe("cpu", launch=launch).recipe
    notes = io.StringIO()
    status = supervise.supervise(
        run,
        lambda logs: argv.many_nodes(
            sys.executable, found, run, logs, head="127.0.0.1", job="7", stop_s=200
        ),
        os.environ | {"BEHAVIOUR": behaviour},
        Settings(grace=Grace(200, 5), node=ThroughSrun, notes=notes, **settings),
    )
    return status, notes.getvalue()


def test_two_nodes_meet_and_a_dead_rank_ends_the_attempt(run: Path, recipe: MakeRecipe) -> None:
    status, notes = job(run, recipe, "raises", max_restarts=1)
    assert status == 0, notes
    first, second = record.read(run)["attempts"]
    assert first["reason"] == "rank 1 ended with exit code 3"
    assert "RuntimeError: a tensor of rank 1 is not finite" in notes
    assert (second["status"], second["first_step"], second["last_step"]) == ("finished", 2, 6)
    logs = run / "logs" / "attempt-2"
    assert {"rank-0.log", "rank-1.log"} <= {path.name for path in logs.iterdir()}


def test_a_signal_reaches_the_ranks_through_srun(run: Path, recipe: MakeRecipe) -> None:
    def send() -> None:
        while progress.since(run, 0).last_step is None:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=send)
    sender.start()
    status, notes = job(run, recipe, "endless")
    sender.join()
    assert status == 0, notes
    assert record.read(run)["attempts"][0]["reason"] == "received SIGTERM"
    assert progress.checkpointed_step(run) == progress.since(run, 0).last_step
