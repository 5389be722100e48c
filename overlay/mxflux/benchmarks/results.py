# SPDX-License-Identifier: Apache-2.0
"""What a run of the step benchmark found out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mxflux.benchmarks.timeline import Timeline


@dataclass
class Measured:
    """One variant at one batch; times in milliseconds, memory in GiB. error: why it has no time."""

    variant: str
    batch: int
    milliseconds: float = 0.0
    forward: float = 0.0
    samples: list[float] = field(default_factory=list)
    peak_memory: float = 0.0
    parameters: int = 0
    timeline: Timeline | None = None
    engaged: dict[str, int] = field(default_factory=dict)
    error: str = ""


@dataclass
class Result:
    """Everything that a run found out."""

    command: str
    device: str
    versions: dict[str, str]
    preset: str
    blocks: str
    mode: str
    precision: str
    tokens: tuple[int, int]
    peak_tflops: float
    copy_bandwidth: float
    work: dict[str, Any]
    rows: list[Measured] = field(default_factory=list)


def restore(found: dict[str, Any]) -> Measured:
    """A row as a worker wrote it."""
    lines = found.pop("timeline")
    timeline = None if lines is None else Timeline(**lines)
    return Measured(**found, timeline=timeline)
