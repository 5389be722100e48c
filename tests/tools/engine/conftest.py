# SPDX-License-Identifier: Apache-2.0
"""Make the helpers of this room importable, and give a small repository to patch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from small_repo import SmallRepo


@pytest.fixture
def small(tmp_path: Path) -> SmallRepo:
    """A repository with a few files; see `SmallRepo`."""
    return SmallRepo(tmp_path / "repo")
