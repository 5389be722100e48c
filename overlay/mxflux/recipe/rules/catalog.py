# SPDX-License-Identifier: Apache-2.0
"""The list of all rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .finding import Rule

RULES: tuple[Rule, ...] = ()
