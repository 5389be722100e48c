# SPDX-License-Identifier: Apache-2.0
"""Where the time of an evaluation goes. All off by default; none adds a synchronisation."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class ProbeSettings:
    """Which probes are on: recipe keys ``probes.*``."""

    profile: bool = False
    """torch.profiler around evaluation; a Chrome trace an evaluation in ``directory``."""
    iteration_period: bool = False
    """Time from the start of one micro-batch to that of the next, on the device."""
    fetch_time: bool = False
    """Time in ``next()`` of the loader alone, on the host."""
    directory: Path | None = None

    def __post_init__(self) -> None:
        if self.profile and self.directory is None:
            raise ValueError("the profile probe needs a directory for its traces")


@dataclass
class EvaluationProbe:
    """The probes of one evaluation. ``report`` is empty when all are off."""

    settings: ProbeSettings
    device: torch.device
    _marks: list[Any] = field(default_factory=list)
    _fetches: list[float] = field(default_factory=list)
    _profiler: Any = None

    def __enter__(self) -> EvaluationProbe:
        if self.settings.profile:
            self._profiler = torch.profiler.profile()
            self._profiler.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._profiler is not None:
            self._profiler.__exit__(*error)

    def timed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The same batches; the time of each ``next()`` is kept when that probe is on."""
        if not self.settings.fetch_time:
            return batches
        return self._timed(batches)

    def _timed(self, batches: Iterator[Any]) -> Iterator[Any]:
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                return
            self._fetches.append(time.perf_counter() - start)
            yield batch

    def mark(self) -> None:
        """Note the start of a micro-batch: an event in the stream, which nothing waits for."""
        if not self.settings.iteration_period:
            return
        if self.device.type == "cuda":
            event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def report(self, step: int) -> dict[str, list[float]]:
        """Seconds of each micro-batch and of each fetch; call it when the device is idle anyway."""
        if self._profiler is not None and self.settings.directory is not None:
            self.settings.directory.mkdir(parents=True, exist_ok=True)
            name = f"evaluation-{step:07d}-rank-{_rank()}.json"
            self._profiler.export_chrome_trace(str(self.settings.directory / name))
        found: dict[str, list[float]] = {}
        if self.settings.iteration_period:
            pairs = zip(self._marks, self._marks[1:], strict=False)
            found["iteration_seconds"] = [_between(start, stop) for start, stop in pairs]
        if self.settings.fetch_time:
            found["fetch_seconds"] = list(self._fetches)
        return found


def _between(start: Any, stop: Any) -> float:
    if isinstance(start, float):
        return float(stop - start)
    return float(start.elapsed_time(stop)) / 1e3


def _rank() -> int:
    distributed = torch.distributed
    ready = distributed.is_available() and distributed.is_initialized()
    return distributed.get_rank() if ready else 0
