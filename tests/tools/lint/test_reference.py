# SPDX-License-Identifier: Apache-2.0
"""docs/reference/patch-format.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mxtree.engine.am import AM_OPTIONS
from mxtree.series.canonical import FORMAT_PATCH
from mxtree.series.fields import OPTIONAL, REQUIRED

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "patch-format.md").read_text(encoding="utf-8")
GROUPS = "series|patch|form|field|changes|proof|message|layout|source"


def test_every_rule_is_described_and_nothing_else() -> None:
    folders = (ROOT / "tools" / "mxtree" / name for name in ("series", "lint"))
    code = "".join(path.read_text() for folder in folders for path in folder.glob("*.py"))
    used = set(re.findall(rf'"((?:{GROUPS})-[a-z-]+)"', code))
    described = set(re.findall(rf"`((?:{GROUPS})-[a-z-]+)`", PAGE.partition("reports\n")[2]))
    assert used == described


@pytest.mark.parametrize("option", [*FORMAT_PATCH, *AM_OPTIONS])
def test_every_option_is_named(option: str) -> None:
    assert option in PAGE


@pytest.mark.parametrize("name", [*REQUIRED, *OPTIONAL])
def test_every_field_is_described(name: str) -> None:
    assert f"`{name}`" in PAGE
