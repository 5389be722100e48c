# SPDX-License-Identifier: Apache-2.0
"""A project that is all right, and the means to spoil it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mxtree.lint import lint
from mxtree.upstreams import Source, ensure_imported, load_upstreams

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.project import Project
    from mxtree.series import Problem

TEST = """import pytest


@pytest.mark.control("assert None == 1")
def test_count() -> None:
    pass


def test_without_control() -> None:
    pass


class TestGroup:
    @pytest.mark.control("x")
    def test_inside(self) -> None:
        pass


@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.control("y"))])
def test_parametrised(x: int) -> None:
    pass
"""


class Workbench:
    """A project, and what `mxtree lint` says about it."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.folder = project.series_dir("megatron-lm", "1.0")
        self.patch = next(self.folder.glob("*.patch"))
        self.raw = self.patch.read_bytes()

    def replace(self, old: bytes, new: bytes) -> None:
        """Replace a piece of the patch that it holds exactly once or more, at its first place."""
        assert old in self.raw
        self.raw = self.raw.replace(old, new, 1)
        self.patch.write_bytes(self.raw)

    def import_releases(self) -> None:
        """Bring the releases into the cache, so that diffs and symbols are compared with them."""
        upstreams = load_upstreams(self.project)
        for name in ("megatron-lm", "transformer-engine"):
            upstream = upstreams.get(name)
            ensure_imported(self.project, upstream, upstream.default, Source.parse("git"))

    def problems(self) -> list[Problem]:
        """Return the problems of the project."""
        return lint(self.project).problems

    def rules(self) -> list[tuple[str, int, str]]:
        """Return (file name, line, rule) of each problem."""
        return [(found.path.name, found.line, found.rule) for found in self.problems()]

    def only(self) -> Problem:
        """Return the one problem there is, which must be one of the patch."""
        (found,) = self.problems()
        assert found.path == self.patch
        return found


@pytest.fixture
def bench(project: Project, tmp_path: Path) -> Workbench:
    """The small project, with the test that its patches name."""
    tests = project.root / "tests" / "tree"
    tests.mkdir(parents=True)
    (tests / "test_code.py").write_text(TEST)
    return Workbench(project)
