# SPDX-License-Identifier: Apache-2.0
"""Requested = effective: a recipe, Megatron's arguments, what Megatron makes of them, what runs.

    live = {"config": config, "ddp": ddp_config, "optimizer": optimizer_config, "scheduler": s}
    report = examine(loaded.recipe, loaded.origins, live, world_size=8)
    report.write(run_dir / "effective.json")
    report.check()

Needs Megatron; imports it only when called.
"""

from __future__ import annotations

from .report import EffectiveError, EffectiveReport, Row, examine

__all__ = ["EffectiveError", "EffectiveReport", "Row", "examine"]
