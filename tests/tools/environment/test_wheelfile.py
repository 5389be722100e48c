# SPDX-License-Identifier: Apache-2.0
"""Wheels as files: same content, same bytes."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from typing import TYPE_CHECKING

from mxtree.environment.wheelfile import Wheel, WheelFile

if TYPE_CHECKING:
    from pathlib import Path

METADATA = b"Metadata-Version: 2.1\nName: Some.Thing\nVersion: 1.0+mxtree.ab\n"
FILES = {
    "thing/__init__.py": WheelFile(b"x = 1\n"),
    'thing/odd,"name.txt': WheelFile(b""),
    "thing/run.sh": WheelFile(b"#!/bin/sh\n", executable=True),
}


def make(files: dict[str, WheelFile]) -> Wheel:
    return Wheel("Some.Thing", "1.0+mxtree.ab", METADATA, files, {"top_level.txt": b"thing\n"})


def test_names_are_spelled_as_the_format_wants_them() -> None:
    assert make(FILES).filename == "some_thing-1.0+mxtree.ab-py3-none-any.whl"


def test_order_of_files_does_not_show() -> None:
    backwards = dict(reversed(FILES.items()))
    assert make(FILES).to_bytes() == make(backwards).to_bytes()


def test_bytes_are_pinned() -> None:
    digest = hashlib.sha256(make(FILES).to_bytes()).hexdigest()
    assert digest == "e056b53a78da4f0c4300d8cd85194d0f7e6ac4a6b70160c5271da468d07a620e"


def test_record_lists_every_member_with_its_hash() -> None:
    archive = zipfile.ZipFile(io.BytesIO(make(FILES).to_bytes()))
    record = archive.read("some_thing-1.0+mxtree.ab.dist-info/RECORD").decode()
    rows = {path: (digest, size) for path, digest, size in csv.reader(record.splitlines())}
    assert list(rows) == archive.namelist()
    for name in archive.namelist()[:-1]:
        data = archive.read(name)
        expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert rows[name] == (f"sha256={expected}", str(len(data)))
    assert rows[archive.namelist()[-1]] == ("", "")


def test_modes_survive() -> None:
    archive = zipfile.ZipFile(io.BytesIO(make(FILES).to_bytes()))
    assert archive.getinfo("thing/run.sh").external_attr >> 16 == 0o100755
    assert archive.getinfo("thing/__init__.py").external_attr >> 16 == 0o100644


def test_writing_leaves_one_file(tmp_path: Path) -> None:
    path = make(FILES).write(tmp_path / "new" / "folder")
    assert path.read_bytes() == make(FILES).to_bytes()
    assert list(path.parent.iterdir()) == [path]
