# SPDX-License-Identifier: Apache-2.0
"""Listing, digest and copy of a folder."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxtree.errors import FatalError
from mxtree.tree.files import FileEntry, copy_files, digest, scan

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "folder"
    (root / "deep" / "er").mkdir(parents=True)
    (root / "a.py").write_bytes(b"a\r\n")
    (root / "deep" / "er" / "run").write_bytes(b"#!/bin/sh\n")
    (root / "deep" / "er" / "run").chmod(0o700)
    return root


def test_scan_lists_mode_and_hash_of_each_file(folder: Path) -> None:
    assert scan(folder) == {
        "a.py": FileEntry("100644", hashlib.sha256(b"a\r\n").hexdigest()),
        "deep/er/run": FileEntry("100755", hashlib.sha256(b"#!/bin/sh\n").hexdigest()),
    }


def test_by_products_of_running_code_are_not_content(folder: Path) -> None:
    before = scan(folder)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.cpython-312.pyc").write_bytes(b"x")
    (folder / "mxflux.egg-info").mkdir()
    (folder / "mxflux.egg-info" / "PKG-INFO").write_bytes(b"x")
    assert scan(folder) == before


def test_an_absent_folder_is_empty(tmp_path: Path) -> None:
    assert scan(tmp_path / "none") == {}


def test_copy_is_equal_whatever_the_umask(folder: Path, tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        listing = copy_files(folder, tmp_path / "copy")
    finally:
        os.umask(old)
    assert listing == scan(folder) == scan(tmp_path / "copy")
    assert (tmp_path / "copy" / "a.py").stat().st_mode & 0o777 == 0o644


def test_copy_refuses_a_symlink_and_names_it(folder: Path, tmp_path: Path) -> None:
    (folder / "link").symlink_to("/etc/hostname")
    with pytest.raises(FatalError, match=r"folder/link is a symlink"):
        copy_files(folder, tmp_path / "copy")


@given(
    st.dictionaries(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1),
        st.builds(FileEntry, st.sampled_from(["100644", "100755"]), st.text("0123456789abcdef")),
        min_size=1,
    ),
    st.data(),
)
def test_digest_changes_with_any_entry(files: dict[str, FileEntry], data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(files)))
    without = {key: value for key, value in files.items() if key != path}
    other = files | {path: FileEntry("120000", files[path].sha256)}
    assert len({digest(files), digest(without), digest(other)}) == 3
    assert digest(dict(reversed(files.items()))) == digest(files)
