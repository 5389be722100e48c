# SPDX-License-Identifier: Apache-2.0
"""The distributions of a tree."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from environment_trees import make_tree

from mxtree.environment import metadata
from mxtree.environment.distributions import Distribution, of_tree
from mxtree.errors import FatalError

if TYPE_CHECKING:
    from pathlib import Path


def by_name(tree: Path) -> dict[str, Distribution]:
    return {distribution.name: distribution for distribution in of_tree(tree)}


@pytest.fixture(scope="module")
def git_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("git") / "default", from_git=True)


def test_a_release_keeps_its_metadata_and_files(tree: Path) -> None:
    found = by_name(tree)
    core, te, mxflux = (found[n] for n in ("megatron-core", "transformer-engine", "mxflux"))
    assert (core.version, te.version, mxflux.version) == ("0.18.2", "2.18.0", "0.1.0")
    assert "megatron/core/datasets/helpers.cpp" in core.files, "upstream's wheel has it"
    assert "megatron/training/__init__.py" in core.files
    assert not [path for path in core.files if path.startswith("megatron/legacy")]
    assert te.files == (
        "transformer_engine/__init__.py",
        "transformer_engine/common/__init__.py",
        "transformer_engine/common/triton/kernel.py",
    )
    assert te.metadata == next(te.root.glob("*.dist-info/METADATA")).read_bytes()
    assert te.info["licenses/LICENSE"] == b"Apache\n"
    assert mxflux.files == ("mxflux/__init__.py", "mxflux/mx/formats.py")


def test_requires_python_is_what_a_patch_made_of_pyproject(tree: Path) -> None:
    core = by_name(tree)["megatron-core"]
    assert b"Requires-Python: >=3.12" in (core.root / "PKG-INFO").read_bytes()
    assert core.requires_python == ">=3.10"


def test_a_git_checkout_gives_python_files_and_what_manifest_in_names(git_tree: Path) -> None:
    found = by_name(git_tree)
    core = found["megatron-core"].files
    assert "megatron/core/datasets/helpers.cpp" not in core
    assert "megatron/core/requirements.txt" in core
    assert not [path for path in found["transformer-engine"].files if path.endswith(".cu")]


def test_a_git_checkout_gives_its_metadata_statically(git_tree: Path) -> None:
    found = by_name(git_tree)
    core = metadata.parse(found["megatron-core"].metadata)
    te = metadata.parse(found["transformer-engine"].metadata)
    assert (core.name, str(core.version)) == ("megatron-core", "0.18.2")
    assert (te.name, str(te.version)) == ("transformer_engine", "2.18.0")
    assert te.summary == "Transformer acceleration library"
    assert [str(r) for r in te.requires_dist or ()] == ["pydantic", "packaging"]
    assert found["transformer-engine"].requires_python == ">=3.10.0"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("megatron-lm/megatron/core/package_info.py", "MAJOR, MINOR = get()\n"),
        ("transformer-engine/setup.py", "setuptools.setup(name=compute())\n"),
        ("overlay/mxflux/__init__.py", "__version__ = read()\n"),
    ],
)
def test_what_would_take_a_build_is_an_error(tmp_path: Path, path: str, text: str) -> None:
    tree = make_tree(tmp_path / "tree", from_git=True, extra={path: text})
    with pytest.raises(FatalError, match="does not give the metadata") as caught:
        of_tree(tree)
    assert path.split("/", maxsplit=1)[0] in caught.value.message


def test_a_missing_part_is_an_error(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    shutil.rmtree(tree / "transformer-engine" / "transformer_engine")
    with pytest.raises(FatalError, match=r"transformer-engine has no transformer_engine/__init__"):
        of_tree(tree)
