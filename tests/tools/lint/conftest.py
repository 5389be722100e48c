# SPDX-License-Identifier: Apache-2.0
"""A project that is all right, and the means to spoil it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mxtree.lint import lint
from mxtree.project import Project
from mxtree.upstreams import Source, ensure_imported, load_upstreams

if TYPE_CHECKING:
    from pathlib import Path

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


PINS = f"""schema = 1

[upstream.megatron-lm]
package = "megatron-core"
packaging = "sdist"
default = "1.0"
repository = "https://example.invalid/megatron.git"
tag = "v{{version}}"

[upstream.megatron-lm.release."1.0"]
file = "megatron_core-1.0.tar.gz"
sha256 = "{"0" * 64}"
tree = "{"0" * 40}"
"""

RAW = b"""From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: Ada L <ada@example.org>
Date: Tue, 1 Dec 2026 00:00:00 +0000
Subject: Teach megatron-lm to count

Description: It could not.
Origin: vendor, mxtree authors
Upstream-Status: Pending
Changes: code.count
Proven-By: tests/tree/test_code.py::test_count

diff --git a/code.py b/code.py
index 0123456789012345678901234567890123456789..1234567890123456789012345678901234567890 100644
--- a/code.py
+++ b/code.py
@@ -1,2 +1,2 @@
 def count():
-    return None
+    return 1
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
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    """One upstream with one patch, whose release cannot be had."""
    monkeypatch.setenv("MXTREE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "patches" / "megatron-lm" / "1.0"
    folder.mkdir(parents=True)
    (folder / "0001-count.patch").write_bytes(RAW)
    (folder / "series").write_text("0001-count.patch\n")
    (tmp_path / "patches" / "upstreams.toml").write_text(PINS)
    _write_test(tmp_path)
    return Workbench(Project(tmp_path))


@pytest.fixture
def full_bench(project: Project) -> Workbench:
    """Two real upstreams with a patch each, whose releases can be imported."""
    _write_test(project.root)
    return Workbench(project)


def _write_test(root: Path) -> None:
    tests = root / "tests" / "tree"
    tests.mkdir(parents=True)
    (tests / "test_code.py").write_text(TEST)
