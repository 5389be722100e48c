# SPDX-License-Identifier: Apache-2.0
"""The MLPerf log of a run, through the official package: run_start and run_stop exactly once.

Order of a run: ``with MLPerfLog(...) as log`` (cache_clear, init_start), ``describe``, build and
warm up, ``run_start`` right before the first ``next()`` of the real loader, then for each
evaluation ``evaluation_start`` and ``evaluation_stop``. Leaving the block ends a run that has not
ended. What no code in the process can report (SIGKILL, an abort in NCCL, a rank that hangs because
its sibling died) the guardian process reports.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from .mlperf_facts import MLPerfFacts

FOLDER = "mlperf"
RESULT = "result_0.txt"
_GUARDIAN_SECONDS = 10


def log_path(run_dir: Path, attempt: int) -> Path:
    """Where an attempt (from 1) of a run writes its log: a restarted run is another MLPerf run."""
    return run_dir / FOLDER / f"attempt-{attempt}" / RESULT


def open_logger(path: Path) -> Any:
    """Logger of mlperf_logging that appends to ``path``. Raises ImportError without the package."""
    try:
        from mlperf_logging.mllog.mllog import MLLogger
    except ImportError as error:
        raise ImportError(
            "mlperf.enable needs the package mlperf-logging in the tree's environment: "
            "./mxtree install"
        ) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    logger = logging.Logger(f"mllog.{path}")
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    # Log lines name the file that wrote them: without the folder of this machine.
    return MLLogger(
        logger=logger, default_stack_offset=2, root_dir=str(Path(__file__).resolve().parents[2])
    )


def close_logger(logger: Any) -> None:
    """Close the file of a logger that ``open_logger`` made."""
    for handler in list(logger.logger.handlers):
        handler.close()
        logger.logger.removeHandler(handler)


class MLPerfLog:
    """Writes on rank 0 only; all ranks make the same calls and get the same answers.

    Args:
        path: see ``log_path``; None on other ranks than 0, and for a run without a log.
        target: validation loss at which the run has succeeded.
        guard: start the guardian process.
    """

    def __init__(self, path: Path | None, *, target: float, guard: bool = True) -> None:
        self.target = target
        self.status: str | None = None
        """"success" or "aborted" once the run has ended."""
        self.started = False
        self.samples = 0
        self._since = 0, 0.0
        """Samples and time from which throughput counts."""
        self._path = path
        self._logger = open_logger(path) if path else None
        self._guard = guard
        self._guardian: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> MLPerfLog:
        self._event("cache_clear", True)
        self._start("init_start")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        reason = "ended without reaching the target" if kind is None else kind.__name__
        self.run_stop("aborted", reason=reason)
        self.close()

    def describe(self, facts: MLPerfFacts) -> None:
        """Log the submission, the hyper-parameters and what the run does."""
        for key, value in facts.values.items():
            self._event(key, value)

    def run_start(self, samples: int = 0) -> None:
        """Start the clock: after every warm-up, before anything touches the data set."""
        if self.started:
            raise RuntimeError("run_start is logged already: the clock of a run starts once")
        self.started = True
        self.samples, self._since = samples, (samples, time.monotonic())
        if self._path and self._guard:
            self._guardian = _start_guardian(self._path)
        self._stop("init_stop")
        self._start("run_start")
        self._start("block_start", samples)

    def throughput(self, samples: int) -> None:
        """Log how many samples a second were trained since the last call, evaluations apart."""
        now = time.monotonic()
        trained, seconds = samples - self._since[0], max(now - self._since[1], 1e-9)
        self.samples, self._since = samples, (samples, now)
        self._event("tracked_stats", {"throughput": trained / seconds}, {"samples_count": samples})

    def evaluation_start(self, samples: int) -> None:
        """An evaluation begins after ``samples`` trained samples."""
        self.samples = samples
        self._stop("block_stop", samples)
        self._start("eval_start", samples)

    def evaluation_stop(self, samples: int, loss: float) -> bool:
        """Log its loss; returns True, and ends the run, when the target is reached.

        ``loss`` is the evaluator's, the same bits on every rank, so all ranks stop or none does.
        """
        self._event("eval_accuracy", loss, {"samples_count": samples})
        self._stop("eval_stop", samples)
        self._since = samples, time.monotonic()
        reached = loss <= self.target
        if reached:
            self.run_stop("success")
        else:
            self._start("block_start", samples)
        return reached

    def run_stop(self, status: str, *, reason: str | None = None) -> None:
        """Stop the clock. Only the first call after ``run_start`` does anything."""
        if not self.started or self.status is not None:
            return
        self.status = status
        extra = {"reason": reason} if reason else {}
        self._stop("run_stop", self.samples, {"status": status, **extra})

    def close(self) -> None:
        """Close the file and let the guardian go."""
        if self._logger is None:
            return
        close_logger(self._logger)
        self._logger = None
        if self._guardian is not None and self._guardian.stdin is not None:
            self._guardian.stdin.close()
            try:
                self._guardian.wait(timeout=_GUARDIAN_SECONDS)
            except subprocess.TimeoutExpired:
                self._guardian.kill()
                self._guardian.wait()

    def _event(self, key: str, value: Any, metadata: dict[str, Any] | None = None) -> None:
        if self._logger is not None:
            self._logger.event(key, value, metadata)

    def _start(self, key: str, samples: int | None = None) -> None:
        if self._logger is not None:
            self._logger.start(key, metadata=_count(samples))

    def _stop(
        self, key: str, samples: int | None = None, more: dict[str, Any] | None = None
    ) -> None:
        if self._logger is not None:
            self._logger.end(key, metadata=(_count(samples) or {}) | (more or {}))


def _count(samples: int | None) -> dict[str, Any] | None:
    return None if samples is None else {"samples_count": samples}


def _start_guardian(path: Path) -> subprocess.Popen[bytes]:
    # A session of its own: torchrun signals the whole process group of a rank. Beside the log: no
    # module lies there that Python 3.10 could take for ours.
    guardian = [sys.executable, "-m", "mxflux.evaluation.mlperf_guardian"]
    return subprocess.Popen(
        [*guardian, str(path.absolute()), str(os.getpid())],
        cwd=path.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
