# SPDX-License-Identifier: Apache-2.0
"""What a training checkpoint says about the run that wrote it, and whether this run can resume."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

OPTIMIZER_FORMATS = ("dp_reshardable", "fully_reshardable")


@dataclass(frozen=True)
class Progress:
    """How far a run has come; ``recipe_sha256`` names the resolved recipe it follows."""

    iteration: int
    consumed_samples: int
    recipe_sha256: str


@dataclass(frozen=True)
class Layout:
    """How many ranks share what."""

    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    data: int = 1

    def differences(self, other: Layout) -> list[str]:
        """One line for every size in which two layouts differ."""
        return [
            f"{axis}-parallel size {mine} != {theirs}"
            for axis, mine in asdict(self).items()
            if mine != (theirs := getattr(other, axis))
        ]


@dataclass(frozen=True)
class TrainingRecord:
    """The ``training`` section of a manifest."""

    progress: Progress
    layout: Layout
    optimizer_format: str | None
    """None: without an optimizer."""
    holds: tuple[str, ...]
    """What is in it beside the model: "optimizer", "scheduler", "random", "loader", "counter"."""
    versions: dict[str, str]
    """Of megatron-core, torch and mxflux."""

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return {**asdict(self), "holds": list(self.holds)}


def record_from_json(values: dict[str, Any]) -> TrainingRecord:
    """A record from its JSON form; raises KeyError or TypeError for another form."""
    return TrainingRecord(
        progress=Progress(**values["progress"]),
        layout=Layout(**values["layout"]),
        optimizer_format=values["optimizer_format"],
        holds=tuple(values["holds"]),
        versions=dict(values["versions"]),
    )


def release(version: str) -> tuple[int, int]:
    """(major, minor) of a version of megatron-core: what decides which checkpoints it reads."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)
