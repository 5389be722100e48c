# SPDX-License-Identifier: Apache-2.0
"""What a check of patches/ found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.series import Problem, Series


@dataclass
class Report:
    """Problems (each makes the check fail), notes (worth knowing), and how much was looked at."""

    root: Path
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    series: int = 0
    patches: int = 0


@dataclass(frozen=True)
class SeriesAt:
    """A series and the upstream release that it is for."""

    upstream: str
    version: str
    series: Series
