# SPDX-License-Identifier: Apache-2.0
"""Attempts of a run through the real torchrun, with ranks that count instead of training."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import mxflux
from mxflux.recipe.launch import progress, ranks, record, supervise
from mxflux.recipe.launch.errors import LaunchError
from mxflux.recipe.launch.node import Grace
from mxflux.recipe.launch.supervise import Settings

HERE = Path(__file__).parent
OVERLAY = Path(mxflux.__file__).parents[1]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    record.write(folder, {"format": 1, "attempts": [], "status": "new"})
    return folder


def environment(behaviour: str) -> dict[str, str]:
    paths = os.pathsep.join([str(OVERLAY), str(HERE)])
    return os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "BEHAVIOUR": behaviour}


def argv(run: Path, logs: Path, *options: str) -> list[str]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    module = ["-m", "mxflux.recipe.launch.rank", str(logs), "a_training", f"--run-dir={run}"]
    return [*torchrun, *(options or ["--standalone"]), *module]


class Watched:
    """One supervised run: exit status, both streams and the record."""

    def __init__(self, run: Path, behaviour: str, *options: str, **settings: Any) -> None:
        console, notes = io.StringIO(), io.StringIO()
        grace = Grace(stop_s=200, failure_s=1.0)
        self.status = supervise.supervise(
            run,
            lambda logs: argv(run, logs, *options),
            environment(behaviour),
            Settings(grace=grace, console=console, notes=notes, **settings),
        )
        self.console, self.notes = console.getvalue(), notes.getvalue()
        self.record = record.read(run)
        self.attempts = self.record["attempts"]


def test_a_run_that_finishes(run: Path) -> None:
    watched = Watched(run, "good")
    assert watched.status == 0, watched.notes
    assert (watched.record["status"], watched.attempts[0]["exit_code"]) == ("finished", 0)
    assert (watched.attempts[0]["first_step"], watched.attempts[0]["last_step"]) == (0, 6)
    assert watched.console == "rank 0 is at the end\n"
    logs = run / "logs" / "attempt-1"
    log = (logs / "rank-0.log").read_text()
    assert log.splitlines() == ["written below Python", "rank 0 is at the end"]
    assert "rank 1 is at the end" in (logs / "rank-1.log").read_text()
    note = json.loads((logs / "rank-1.json").read_text())
    assert (note["rank"], note["exit_code"]) == (1, 0)
    assert note["finished"] >= note["started"]


@pytest.mark.parametrize("safe", ["", "1"])
def test_the_working_directory_is_not_what_runs(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, safe: str
) -> None:
    """An empty variable is as good as none: so it is on Python 3.10."""
    here = tmp_path / "here"
    here.mkdir()
    for name in ("a_training", "torch", "mxflux", "json"):
        (here / f"{name}.py").write_text("raise SystemExit('the copy in the working directory')")
    monkeypatch.chdir(here)
    record.write(run, {**record.read(run), "cwd": str(tmp_path)})
    status = supervise.supervise(
        run,
        lambda logs: argv(run, logs, "--standalone"),
        environment("good") | {"PYTHONSAFEPATH": safe},
        Settings(),
    )
    assert (status, record.read(run)["status"]) == (0, "finished")
    assert (run / "here-1").read_text() == str(tmp_path), "paths of the recipe are from there"


def test_a_working_directory_that_is_gone(run: Path, tmp_path: Path) -> None:
    record.write(run, {**record.read(run), "cwd": str(tmp_path / "gone")})
    watched = Watched(run, "good")
    assert watched.status == 2
    assert "error: the working directory of the run: " in watched.notes
    assert "gone" in watched.notes


def test_an_attempt_that_cannot_be_started_is_recorded_as_failed(run: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-srun"):
        supervise.supervise(run, lambda _logs: ["no-such-srun"], os.environ, Settings())
    found = record.read(run)
    (attempt,) = found["attempts"]
    assert (found["status"], attempt["status"], attempt["exit_code"]) == ("failed", "failed", 3)
    assert "no-such-srun" in attempt["reason"]


def test_a_disk_that_is_full_at_the_end_hides_no_error(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(record, "end_attempt", full)
    notes = io.StringIO()
    with pytest.raises(OSError, match="No space left"):
        supervise.supervise(
            run, lambda logs: argv(run, logs), environment("broken"), Settings(notes=notes)
        )
    assert "ValueError: no such layer" in notes.getvalue()


def test_a_killed_rank_is_named_and_the_run_goes_on_from_its_checkpoint(run: Path) -> None:
    watched = Watched(run, "killed", max_restarts=2)
    assert watched.status == 0, watched.notes
    hung = json.loads((run / "logs" / "attempt-1" / "rank-0.json").read_text())
    assert hung["ended_by_launcher"], "the rank that hung was waited for"
    first, second = watched.attempts
    assert (first["status"], first["reason"]) == ("failed", "rank 1 was killed by SIGKILL")
    assert (second["status"], second["first_step"]) == ("finished", 2)
    assert "restart 1 of 2, from the checkpoint of step 2" in watched.notes
    assert "error: rank 1 was killed by SIGKILL, after step 2" in watched.notes


def test_an_error_after_some_steps_is_shown_and_tried_again_as_often_as_asked(run: Path) -> None:
    watched = Watched(run, "raises", max_restarts=0)
    assert watched.status == 3
    assert len(watched.attempts) == 1
    assert watched.attempts[0]["reason"] == "rank 1 ended with exit code 3"
    assert "\nnext: the same command " in watched.notes
    assert "; --max-restarts N does so by itself" in watched.notes
    shown = watched.notes.partition("end of ")[2]
    assert "rank-1.log" in shown
    assert "RuntimeError: a tensor of rank 1 is not finite" in shown


def test_of_an_error_that_the_trainer_words_nothing_else_is_shown(run: Path) -> None:
    watched = Watched(run, "worded")
    assert watched.status == 2
    shown = watched.notes.partition("error of ")[2].splitlines()
    assert shown[0].endswith("rank-1.log:")
    assert shown[1:3] == ["  rank 1: error: another architecture:", "    hidden_size: 1 != 2"]
    assert shown[3].startswith("next: mend it: the same command starts anew, another recipe")
    assert "a warning" not in watched.notes


def test_an_error_before_the_first_step_is_not_tried_again(run: Path) -> None:
    watched = Watched(run, "broken", max_restarts=3)
    assert (watched.status, len(watched.attempts)) == (3, 1)
    assert "ValueError: no such layer" in watched.notes
    assert "before its first step" in watched.notes


def test_a_failed_check_keeps_its_exit_code_and_is_not_tried_again(run: Path) -> None:
    watched = Watched(run, "check", max_restarts=3)
    assert (watched.status, len(watched.attempts)) == (1, 1)
    assert watched.attempts[0]["reason"] == "rank 1 ended with exit code 1"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_lets_the_ranks_save(run: Path, number: signal.Signals, status: int) -> None:
    def send() -> None:
        while progress.since(run, 0).last_step is None:
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    watched = Watched(run, "endless", max_restarts=3)
    sender.join()
    assert watched.status == status, watched.notes
    assert len(watched.attempts) == 1
    assert (watched.record["status"], watched.attempts[0]["reason"]) == (
        "stopped",
        "received SIGTERM",
    )
    assert progress.checkpointed_step(run) == watched.attempts[0]["last_step"]


def test_loader_processes_of_a_rank_do_not_outlive_it(run: Path) -> None:
    assert Watched(run, "loader").status == 0
    pid = int((run / "loader.pid").read_text())
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    assert state.strip()[:1] in {"", "Z"}, f"process {pid} is still there: {state}"


SUPERVISOR = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_supervise import argv, environment
from mxflux.recipe.launch.supervise import Settings, supervise
run = Path({run!r})
supervise(run, lambda logs: argv(run, logs), environment("endless"), Settings())
"""


def test_a_supervisor_that_is_killed_takes_its_ranks_along(run: Path) -> None:
    code = SUPERVISOR.format(here=str(HERE), run=str(run))
    supervisor = subprocess.Popen([sys.executable, "-c", code], env=environment("endless"))
    while progress.since(run, 0).last_step is None:
        time.sleep(0.05)
    supervisor.kill()
    supervisor.wait()
    notes = ranks.read_notes(run / "logs" / "attempt-1")
    while any(ranks.is_running(note) for note in notes):  # pytest's own limit ends this
        time.sleep(0.1)
    assert progress.checkpointed_step(run) == progress.since(run, 0).last_step


def test_two_launches_of_one_run(run: Path) -> None:
    with supervise.hold(run), pytest.raises(LaunchError, match="is running already"):
        supervise.supervise(run, lambda logs: ["true"], {}, Settings())
    assert record.read(run)["attempts"] == []


def test_torchrun_that_cannot_start_is_shown(run: Path) -> None:
    notes = io.StringIO()
    command = [sys.executable, "-c", "raise SystemExit('address already in use')"]
    status = supervise.supervise(run, lambda logs: command, {}, Settings(notes=notes))
    assert status == 3
    assert "torchrun ended with status 1" in notes.getvalue()
    assert "  address already in use" in notes.getvalue()
