# SPDX-License-Identifier: Apache-2.0
"""docs/mx.md: the example of TE runs, and its table names every option."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformer_engine.common import recipe as te_recipe

PAGE = (Path(__file__).resolve().parents[3] / "docs/mx.md").read_text(encoding="utf-8")
MISSING = "MXFP4BlockScaling"


@pytest.mark.control(MISSING)
def test_the_example_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (block,) = [block for block in blocks if "transformer_engine" in block]
    names: dict[str, Any] = {}
    exec(block.replace(', device="cuda"', ""), names)
    assert names["y"].shape == (64, 128)
    assert names["y"].dtype is torch.bfloat16


@pytest.mark.control(MISSING)
def test_the_table_names_every_option() -> None:
    section = PAGE[PAGE.index("## TransformerEngine") : PAGE.index("## Census")]
    of_any = {field.name for field in dataclasses.fields(te_recipe.CustomRecipe)}
    unchangeable = {"margin", "fp8_format", "fp4_format"}
    for cls in (te_recipe.MXFP4BlockScaling, te_recipe.MXFP6BlockScaling):
        for field in dataclasses.fields(cls):
            if field.name not in of_any | unchangeable:
                assert f"`{field.name}`" in section
