# SPDX-License-Identifier: Apache-2.0
"""Metadata: upstream's with one header changed, or made from a static pyproject.toml."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from environment_trees import MEGATRON, MEGATRON_PKG_INFO, write
from packaging.version import Version

from mxtree.environment import metadata
from mxtree.errors import FatalError

if TYPE_CHECKING:
    from pathlib import Path

DIGEST = "0123456789abcdef" * 4


def test_one_header_changes_and_nothing_else() -> None:
    changed = metadata.with_header(MEGATRON_PKG_INFO.encode(), "Version", r"1\2+x.y")
    expected = MEGATRON_PKG_INFO.replace("Version: 0.18.2", r"Version: 1\2+x.y")
    assert changed.decode() == expected


def test_a_header_is_not_looked_for_in_the_readme() -> None:
    text = b"Name: x\n\nVersion: of the readme\n"
    assert metadata.with_header(text, "Version", "1") == text


@pytest.mark.parametrize(
    ("version", "digest", "expected"),
    [
        ("0.18.2", DIGEST, "0.18.2+mxtree.0123456789ab"),
        ("0.18.2", "0123456789012345" + "f" * 48, "0.18.2+mxtree.0123456789012345f"),
        ("2.18", "a" * 64, "2.18+mxtree.aaaaaaaaaaaa"),
        ("2.20.0.dev0+g1234", "b" * 64, "2.20.0.dev0+mxtree.bbbbbbbbbbbb"),
    ],
)
def test_local_version(version: str, digest: str, expected: str) -> None:
    found = metadata.local_version(version, digest)
    assert found == expected
    assert str(Version(found)) == found, "pip would spell it otherwise"


def test_a_modified_tree_says_so() -> None:
    assert metadata.local_version("1.0", "a" * 64, modified=True) == (
        "1.0+mxtree.aaaaaaaaaaaa.modified"
    )


def test_static_pyproject_gives_what_upstreams_build_gives(tmp_path: Path) -> None:
    write(tmp_path, MEGATRON)
    found = metadata.parse(metadata.from_pyproject(tmp_path, "0.18.2"))
    upstream = metadata.parse(MEGATRON_PKG_INFO.encode())
    assert found.name == upstream.name
    assert found.version == upstream.version
    assert found.summary == upstream.summary
    assert {str(r) for r in found.requires_dist or ()} == {
        str(r) for r in upstream.requires_dist or ()
    }
    assert found.provides_extra == upstream.provides_extra
    assert found.description == "# Megatron\n"


@pytest.mark.parametrize(
    ("pyproject", "reason"),
    [
        ("[project]\nname = 'x'\ndynamic = ['version', 'dependencies']\n", "dependencies"),
        ("[build-system]\nrequires = []\n", "'project'"),
        ("[project\n", "line 1"),
        ("[project]\nname = 3\n", "name"),
    ],
)
def test_what_is_not_static_is_an_error(tmp_path: Path, pyproject: str, reason: str) -> None:
    write(tmp_path, {"pyproject.toml": pyproject})
    with pytest.raises(FatalError, match="does not give the metadata") as caught:
        metadata.from_pyproject(tmp_path, "1.0")
    assert reason in caught.value.message
    assert str(tmp_path / "pyproject.toml") in caught.value.message
