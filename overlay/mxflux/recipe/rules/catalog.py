# SPDX-License-Identifier: Apache-2.0
"""The list of all rules, in the order of the sections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import (
    compilation,
    data,
    evaluation,
    expected,
    idle,
    model,
    optimizer,
    parallel,
    precision,
    schedule,
    writing,
)

if TYPE_CHECKING:
    from .finding import Rule

RULES: tuple[Rule, ...] = (
    *model.RULES,
    *precision.RULES,
    *data.RULES,
    *schedule.RULES,
    *optimizer.RULES,
    *parallel.RULES,
    *evaluation.RULES,
    *compilation.RULES,
    *writing.RULES,
    *expected.RULES,
    idle.find_idle,
)
