# SPDX-License-Identifier: Apache-2.0
"""A run on other code than MXTREE_TREE's stops, before the first test or after the import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOOKS = Path(__file__).parents[1] / "conftest.py"
CASES = """
import sys

def test_import():
    import megatron.core

def test_import_from_elsewhere():
    sys.path.insert(0, "elsewhere")
    import transformer_engine
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A test folder with a tree under test and a second copy of its packages, elsewhere."""
    packages = (
        "tree/megatron-lm/megatron/core",
        # An environment may have a tree installed: what is to be found must be first on the path.
        "tree/transformer-engine/transformer_engine",
        "elsewhere/megatron/core",
        "elsewhere/transformer_engine",
    )
    for package in packages:
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "support").symlink_to(Path(__file__).parent)
    (tmp_path / "conftest.py").write_bytes(HOOKS.read_bytes())
    (tmp_path / "test_cases.py").write_text(CASES, encoding="utf-8")
    return tmp_path


def run(folder: Path, *paths: str, tree: str = "tree") -> tuple[int, str]:
    """Exit code and output of pytest with ``paths`` on PYTHONPATH and this MXTREE_TREE."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [*command, "--rootdir", str(folder), "test_cases.py"],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(folder / path) for path in paths),
            "MXTREE_TREE": tree,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_tree_under_test(folder: Path) -> None:
    """Imports from the tree pass; the first test that imports from elsewhere is an error."""
    code, output = run(folder, "tree/megatron-lm", "tree/transformer-engine")
    assert code == 1, output
    assert f"tree under test: {folder / 'tree'}" in output
    assert f"megatron.core: {folder / 'tree/megatron-lm/megatron/core'}" in output
    assert "2 passed, 1 error" in output
    assert "ERROR at teardown of test_import_from_elsewhere" in output
    assert "WrongTreeError: transformer_engine was imported from" in output


@pytest.mark.parametrize("path", ["elsewhere", "tree"])
def test_another_tree(folder: Path, path: str) -> None:
    """No test runs when megatron.core would come from elsewhere, or from nowhere."""
    code, output = run(folder, path)
    assert code == 4, output
    assert "test_cases" not in output.partition("Exit:")[0]
    assert f"put {folder / 'tree/megatron-lm'} first on PYTHONPATH" in output


def test_no_tree_named(folder: Path) -> None:
    """Without MXTREE_TREE the header says what is tested, and nothing is checked."""
    code, output = run(folder, "elsewhere", tree="")
    assert code == 0, output
    assert "MXTREE_TREE is not set" in output
    assert f"megatron.core: {folder / 'elsewhere/megatron/core'}" in output
