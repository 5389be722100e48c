# SPDX-License-Identifier: Apache-2.0
"""`mxtree wheel`, with pip as the judge."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from environment_trees import make_tree

from mxtree.environment.interpreter import inspect
from mxtree.environment.wheel import build_wheels
from mxtree.errors import FatalError
from mxtree.tree.manifest import load_manifest

if TYPE_CHECKING:
    from pathlib import Path


def pip_install(python: Path, wheels: list[Path]) -> None:
    command = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", *wheels]
    subprocess.run(command, env=os.environ | {"PIP_CONFIG_FILE": os.devnull}, check=True)


def test_the_wheels_install_together_and_say_what_they_are(
    tree: Path, tmp_path: Path, pip_python: Path
) -> None:
    built = build_wheels(tree, tmp_path / "dist")
    pip_install(pip_python, [wheel.path for wheel in built])
    after = inspect(pip_python, ["megatron.core", "transformer_engine", "mxflux.mx"])
    digest = load_manifest(tree).digest
    for name, version in {
        "megatron-core": "0.18.2",
        "transformer-engine": "2.18.0",
        "mxflux": "0.1.0",
    }.items():
        found = after.distributions[name]
        assert found.version == f"{version}+mxtree.{digest[:12]}"
        assert found.note == {"digest": digest}
    for location in after.modules.values():
        assert location is not None
        assert location.startswith(str(after.purelib))
    check = subprocess.run(
        [pip_python, "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    assert "mxflux" not in check.stdout
    assert "transformer" not in check.stdout
    assert "which is not installed" in check.stdout, "megatron-core still declares torch"


def test_the_same_tree_gives_the_same_bytes(tree: Path, tmp_path: Path) -> None:
    first = build_wheels(tree, tmp_path / "first")
    copy = shutil.copytree(tree, tmp_path / "elsewhere", symlinks=True)
    os.utime(copy / "overlay" / "mxflux" / "__init__.py", (0, 0))
    (copy / "overlay" / "mxflux" / "__pycache__").mkdir()
    (copy / "overlay" / "mxflux" / "__pycache__" / "x.pyc").write_bytes(b"")
    second = build_wheels(copy, tmp_path / "second")
    assert [wheel.sha256 for wheel in first] == [wheel.sha256 for wheel in second]
    assert [wheel.path.name for wheel in first] == [wheel.path.name for wheel in second]


def test_a_tree_that_does_not_verify_is_refused_and_named(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    (tree / "overlay" / "mxflux" / "new.py").write_text("")
    with pytest.raises(FatalError, match="differs from its manifest in 1 places") as caught:
        build_wheels(tree, tmp_path / "dist")
    assert any("overlay/mxflux/new.py" in line for line in caught.value.details)
    assert not (tmp_path / "dist").exists()


def test_a_modified_tree_that_is_allowed_says_so(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    (tree / "overlay" / "mxflux" / "new.py").write_text("")
    built = build_wheels(tree, tmp_path / "dist", allow_modified=True)
    assert all(wheel.version.endswith(".modified") for wheel in built)
    with pytest.raises(FatalError, match="cannot have upstream's own version"):
        build_wheels(tree, tmp_path / "dist", allow_modified=True, public_version=True)


def test_public_version(tree: Path, tmp_path: Path) -> None:
    built = build_wheels(tree, tmp_path / "dist", public_version=True)
    assert [wheel.version for wheel in built] == ["0.18.2", "2.18.0", "0.1.0"]


def test_what_is_no_tree_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="is not a tree") as caught:
        build_wheels(tmp_path / "nothing", tmp_path / "dist")
    assert "mxtree build --out" in str(caught.value.hint)


def test_a_symlink_that_leaves_the_tree_is_not_packed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("TOKEN = 1\n")
    tree = make_tree(tmp_path / "tree")
    (tree / "overlay" / "mxflux" / "leak.py").symlink_to(secret)
    with pytest.raises(FatalError, match=r"leak\.py is a symlink that leaves"):
        build_wheels(tree, tmp_path / "dist", allow_modified=True)


def test_the_note_names_the_tree_only_where_there_is_one(tree: Path, tmp_path: Path) -> None:
    wheel = build_wheels(tree, tmp_path / "dist")[0]
    assert str(tree) not in wheel.path.read_bytes().decode("latin-1")
    assert json.dumps(load_manifest(tree).digest) in wheel.path.read_bytes().decode("latin-1")
