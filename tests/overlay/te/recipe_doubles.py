# SPDX-License-Identifier: Apache-2.0
"""Recipes with the fields of TE's MXFP4BlockScaling and MXFP6BlockScaling, without TE.

That TE's really have these fields and defaults is what tests/tree/te/test_recipes.py shows.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Format(enum.Enum):
    """The members of TE's Format that recipes use."""

    E2M1 = 4
    E4M3 = 8
    HYBRID = 9


@dataclass
class Recipe:
    """The fields that TE's two recipes share, with their defaults."""

    margin: int = 0
    fp8_format: Format = Format.E4M3
    fp8_dpa: bool = False
    fp8_mha: bool = False
    backward_override: str | None = None
    use_hadamard: bool = False
    stochastic_rounding: bool = False
    dgrad_precision: str | None = None
    wgrad_precision: str | None = None
    scale_mode: str = "even"
    weight_block_2d: bool = False
    backend: str | None = "emulated"


@dataclass
class Four(Recipe):
    fp4_format: Format = Format.E2M1


@dataclass
class Six(Recipe):
    fp6_format: str = "E2M3"
