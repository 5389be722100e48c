# SPDX-License-Identifier: Apache-2.0
"""A built tree to edit, and a user with a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mxtree.tree.build import BuildRequest, build
from mxtree.upstreams import Source

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.project import Project


@pytest.fixture
def tree(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of the small project."""
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Ada")
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "ada@example.org")
    out = tmp_path / "tree"
    sources = dict.fromkeys(("megatron-lm", "transformer-engine"), Source.parse("git"))
    build(project, BuildRequest(out, sources=sources))
    return out
