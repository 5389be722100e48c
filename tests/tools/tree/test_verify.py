# SPDX-License-Identifier: Apache-2.0
"""Every way a tree can differ from its manifest is found and named."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from mxtree.errors import ExitCode, FatalError
from mxtree.git import git, git_text
from mxtree.tree.build import BuildRequest, build
from mxtree.tree.verify import Difference, blob_id, verify
from mxtree.upstreams import Source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mxtree.project import Project


@pytest.fixture
def tree(project: Project, tmp_path: Path) -> Path:
    out = tmp_path / "tree"
    sources = dict.fromkeys(("megatron-lm", "transformer-engine"), Source.parse("git"))
    build(project, BuildRequest(out, sources=sources))
    return out


def _flip_byte(tree: Path) -> None:
    """Same size, same time stamp: what `git status` would not see."""
    path = tree / "megatron-lm" / "code.py"
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(b"1", b"2"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _replace_by_link(tree: Path) -> None:
    path = tree / "megatron-lm" / "code.py"
    path.unlink()
    path.symlink_to("pkg.egg-info/PKG-INFO")


def _edit_manifest(tree: Path) -> None:
    data = json.loads((tree / "tree.json").read_text())
    data["folders"]["overlay"]["digest"] = "0" * 64
    (tree / "tree.json").write_text(json.dumps(data))


def _drop_the_patch(tree: Path) -> None:
    git("reset", "--quiet", "--hard", "core_v1.0", cwd=tree / "megatron-lm")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_flip_byte, {("differs", "megatron-lm/code.py")}),
        (
            lambda tree: (tree / "overlay" / "mxflux" / "__init__.py").write_text("x"),
            {("differs", "overlay/mxflux/__init__.py")},
        ),
        (
            lambda tree: (tree / "megatron-lm" / "code.py").chmod(0o755),
            {("mode", "megatron-lm/code.py")},
        ),
        (
            _replace_by_link,
            {("mode", "megatron-lm/code.py"), ("differs", "megatron-lm/code.py")},
        ),
        (
            lambda tree: (tree / "megatron-lm" / "pkg.egg-info" / "PKG-INFO").unlink(),
            {("missing", "megatron-lm/pkg.egg-info/PKG-INFO")},
        ),
        (
            lambda tree: (tree / "transformer-engine" / "new.py").write_text(""),
            {("extra", "transformer-engine/new.py")},
        ),
        (lambda tree: (tree / "notes.txt").write_text(""), {("extra", "notes.txt")}),
        (
            _drop_the_patch,
            {("commits", "megatron-lm"), ("differs", "megatron-lm/code.py")},
        ),
        (_edit_manifest, {("manifest", "tree.json")}),
    ],
    ids=lambda value: getattr(value, "__name__", "").strip("_<>") or None,
)
def test_a_change_is_named(
    tree: Path, change: Callable[[Path], object], expected: set[tuple[str, str]]
) -> None:
    assert verify(tree) == []
    change(tree)
    assert {(item.kind, item.path) for item in verify(tree)} == expected


def test_a_lost_repository_is_named(tree: Path) -> None:
    (tree / "megatron-lm" / ".git").rename(tree.parent / "gone")
    assert [(item.kind, item.path) for item in verify(tree)] == [("missing", "megatron-lm/.git")]


def test_a_folder_without_manifest_is_no_tree(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="is not a tree"):
        verify(tmp_path)


def test_an_unreadable_manifest_names_the_key(tree: Path) -> None:
    data = json.loads((tree / "tree.json").read_text())
    data["upstreams"]["megatron-lm"]["version"] = 1
    (tree / "tree.json").write_text(json.dumps(data))
    with pytest.raises(FatalError) as caught:
        verify(tree)
    assert caught.value.code == ExitCode.CHECK_FAILED
    assert "upstreams.megatron-lm.version" in caught.value.details[0]


def test_running_code_in_the_tree_is_no_difference(tree: Path) -> None:
    (tree / "megatron-lm" / "__pycache__").mkdir()
    (tree / "megatron-lm" / "__pycache__" / "code.cpython-312.pyc").write_bytes(b"x")
    assert verify(tree) == []


def test_blob_id_is_gits(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a\r\n\0")
    assert blob_id(b"a\r\n\0") == git_text("hash-object", tmp_path / "file")


def test_a_difference_reads_as_one_line() -> None:
    assert str(Difference("mode", "a/b", "100644 expected")) == "mode      a/b  (100644 expected)"
